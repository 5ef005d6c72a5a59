//! The order service by a saga, killed everywhere.

use justonce_orders::service::Faults;
use justonce_orders::trade::Trade;

use crate::client::{order, unpaid, unshippable};
use crate::crash::{REPLY, killed_at_each};
use crate::shop::{Finisher, Kind, Shop, loses_replies, silent_shipping, sound};

const AHEAD: [&str; 7] = [
    "before reserve",
    "after reserve",
    "before charge",
    "after charge",
    "before ship",
    "after ship",
    REPLY,
];
/// The card is declined.
const UNPAID: [&str; 4] = ["after charge", "before cancel", "after cancel", REPLY];
/// The address does not exist.
const UNSHIPPABLE: [&str; 6] =
    ["after ship", "before refund", "after refund", "before cancel", "after cancel", REPLY];
/// Nobody knows whether it was shipped.
const SILENT: [&str; 7] = [
    "before recall",
    "after recall",
    "before refund",
    "after refund",
    "before cancel",
    "after cancel",
    REPLY,
];

fn shop(faults: fn(Trade) -> Faults) -> Shop {
    Shop::open(Kind::Saga, faults)
}

#[tokio::test]
async fn done_by_the_clients_retry() {
    killed_at_each(&mut shop(sound), &AHEAD, Finisher::Client, order, None).await;
}

#[tokio::test]
async fn done_by_the_completer() {
    killed_at_each(&mut shop(sound), &AHEAD, Finisher::Completer, order, None).await;
}

#[tokio::test]
async fn undone_for_a_card_by_the_clients_retry() {
    let failed = Some("charge");
    killed_at_each(&mut shop(sound), &UNPAID, Finisher::Client, unpaid, failed).await;
}

#[tokio::test]
async fn undone_for_a_card_by_the_completer() {
    let failed = Some("charge");
    killed_at_each(&mut shop(sound), &UNPAID, Finisher::Completer, unpaid, failed).await;
}

#[tokio::test]
async fn undone_for_an_address_by_the_clients_retry() {
    let failed = Some("ship");
    killed_at_each(&mut shop(sound), &UNSHIPPABLE, Finisher::Client, unshippable, failed).await;
}

#[tokio::test]
async fn undone_for_an_address_by_the_completer() {
    let failed = Some("ship");
    killed_at_each(&mut shop(sound), &UNSHIPPABLE, Finisher::Completer, unshippable, failed).await;
}

#[tokio::test]
async fn given_up_and_undone_by_the_clients_retry() {
    let failed = Some("ship");
    killed_at_each(&mut shop(silent_shipping), &SILENT, Finisher::Client, order, failed).await;
}

#[tokio::test]
async fn given_up_and_undone_by_the_completer() {
    let failed = Some("ship");
    killed_at_each(&mut shop(silent_shipping), &SILENT, Finisher::Completer, order, failed).await;
}

#[tokio::test]
async fn done_while_replies_are_lost() {
    killed_at_each(&mut shop(loses_replies), &AHEAD, Finisher::Client, order, None).await;
}

#[tokio::test]
async fn undone_while_replies_are_lost() {
    let (shop, failed) = (&mut shop(loses_replies), Some("ship"));
    killed_at_each(shop, &UNSHIPPABLE, Finisher::Completer, unshippable, failed).await;
}
