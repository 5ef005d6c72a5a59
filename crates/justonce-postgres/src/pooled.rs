//! Whether a connection of ours is one connection to the server.
//!
//! A pooler may give each transaction another connection to the server. Then settings, prepared
//! statements and what a session listens for are lost or somebody else's. It says so to nobody, but
//! it cannot hide it: two connections of ours are the same one for the server, or one is first one
//! and then another.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};

/// How often it is tried: where others are at work, a pooler may give back the same connection by
/// chance.
const ROUNDS: u32 = 4;
/// How long the server may take for an answer. Where a pooler has none free, it takes longer.
const ANSWER_WITHIN: Duration = CONNECT_TIMEOUT;

/// Whether a pooler gives each transaction of a client another connection to the server.
pub(crate) async fn is_pooled(endpoint: &Endpoint, client: &Client) -> Result<bool, Error> {
    let other = match endpoint.connect().await {
        Ok((other, connection)) => {
            tokio::spawn(async move {
                // Whatever breaks it, the client hears of it too.
                let _ = connection.await;
            });
            other
        }
        // A pooler has more for clients than for the server: this is the server itself, and full.
        Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => return Ok(false),
        Err(error) => return Err(error),
    };
    for _ in 0..ROUNDS {
        if is_seen(client, &other).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One round. In this order it is seen with any number of idle connections that a pooler has, and
/// whether it takes the one that was used last or the one that was not used for longest.
async fn is_seen(client: &Client, other: &Client) -> Result<bool, Error> {
    let first = process(client).await?;
    if process(client).await? != first {
        return Ok(true);
    }
    other.simple_query("BEGIN").await?;
    if process(other).await? == first {
        return Ok(true);
    }
    // The other one keeps what it has until it commits. A session has its own, so it is answered.
    let again = match timeout(ANSWER_WITHIN, process(client)).await {
        Ok(answered) => answered?,
        Err(_) => return Ok(true),
    };
    other.simple_query("COMMIT").await?;
    Ok(again != first)
}

/// The process of the server that answers.
async fn process(client: &Client) -> Result<Option<String>, Error> {
    let answer = client.simple_query("SELECT pg_backend_pid()").await?;
    Ok(answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
        _ => None,
    }))
}
