//! A client of the order services.

use std::io;
use std::net::SocketAddr;

use http::StatusCode;
use justonce_orders::call::{Heard, post};
use justonce_orders::order::{Order, Reply};
use serde::Serialize;
use tokio::time::timeout;

use crate::process::{LIMIT, Process};

/// An order that can be carried out.
pub(crate) fn order(name: impl Into<String>) -> Order {
    let (item, card, address) = ("tea".to_owned(), "visa".to_owned(), "home".to_owned());
    Order { order: name.into(), item, card, address }
}

/// An order whose card is declined.
pub(crate) fn unpaid(name: impl Into<String>) -> Order {
    Order { card: "declined".to_owned(), ..order(name) }
}

/// An order that cannot be shipped.
pub(crate) fn unshippable(name: impl Into<String>) -> Order {
    Order { address: "nowhere".to_owned(), ..order(name) }
}

/// Orders once, under the order's name as the key.
pub(crate) async fn ask(service: &Process, order: &Order) -> io::Result<Heard> {
    post(service.address, "orders", &order.order, order).await
}

/// Orders until there is an answer.
pub(crate) async fn ask_until_answered(service: &Process, order: &Order) -> (Reply, Heard) {
    let ended = |heard: &Heard| heard.status != StatusCode::SERVICE_UNAVAILABLE;
    let heard = post_until_answered(service.address, "orders", &order.order, order, ended).await;
    let reply: Reply = heard.json().unwrap();
    let status = match reply {
        Reply::Done { .. } => StatusCode::CREATED,
        Reply::RolledBack { .. } => StatusCode::CONFLICT,
    };
    assert_eq!(heard.status, status);
    (reply, heard)
}

/// Sends a request again and again until it is answered in a way that counts.
pub(crate) async fn post_until_answered<T: Serialize + Sync>(
    to: SocketAddr,
    path: &str,
    key: &str,
    body: &T,
    counts: impl Fn(&Heard) -> bool,
) -> Heard {
    let asking = async {
        loop {
            match post(to, path, key, body).await {
                Ok(heard) if counts(&heard) => return heard,
                // The service itself waits for the owner before it says "later".
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    timeout(LIMIT, asking).await.expect("no answer in time")
}
