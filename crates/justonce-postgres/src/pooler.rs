//! Detects poolers that give each transaction another connection to the server.
//!
//! Behind such a pooler, settings, prepared statements and LISTEN are lost or belong to other
//! clients. It shows in the server's processes: two connections share one, or one connection
//! changes its process.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};

/// The number of rounds: with other clients at work, a pooler may give the same connection by
/// chance.
const ROUNDS: u32 = 4;
/// The time limit for an answer of the server. A pooler without a free connection exceeds it.
const ANSWER_WITHIN: Duration = CONNECT_TIMEOUT;

/// A connection that is driven in the background.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Client, Error> {
    let (client, connection) = endpoint.connect().await?;
    tokio::spawn(async move {
        // The client gets the error too.
        let _ = connection.await;
    });
    Ok(client)
}

/// Whether a pooler gives each transaction of a client another connection to the server.
pub(crate) async fn is_pooled(endpoint: &Endpoint, client: &Client) -> Result<bool, Error> {
    let other = match connect(endpoint).await {
        Ok(other) => other,
        // This is the server itself: a pooler takes more clients than the server.
        Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => return Ok(false),
        Err(error) => return Err(error),
    };
    for _ in 0..ROUNDS {
        if is_detected(client, &other).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One round. This order detects a pooler with any number of idle connections, whether it reuses
/// the most or the least recently used one.
async fn is_detected(client: &Client, other: &Client) -> Result<bool, Error> {
    let first = process(client).await?;
    if process(client).await? != first {
        return Ok(true);
    }
    other.simple_query("BEGIN").await?;
    if process(other).await? == first {
        return Ok(true);
    }
    // The other connection keeps its process until it commits. A real session is not affected.
    let again = match timeout(ANSWER_WITHIN, process(client)).await {
        Ok(answered) => answered?,
        Err(_) => return Ok(true),
    };
    other.simple_query("COMMIT").await?;
    Ok(again != first)
}

/// The server process that answers.
async fn process(client: &Client) -> Result<Option<String>, Error> {
    let answer = client.simple_query("SELECT pg_backend_pid()").await?;
    Ok(answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
        _ => None,
    }))
}
