//! The order service by phases on PostgreSQL, killed everywhere.

use justonce_orders::service::Faults;
use justonce_orders::trade::Trade;

use crate::client::{order, unpaid, unshippable};
use crate::crash::{REPLY, killed_at_each};
use crate::shop::{Finisher, Kind, Shop, loses_replies, sound};

const AHEAD: [&str; 11] = [
    "before open",
    "in open",
    "after open",
    "before reserve",
    "after reserve",
    "before charge",
    "after charge",
    "before ship",
    "after ship",
    "in close",
    REPLY,
];
/// Each answer is lost once, so these are reached by later attempts.
const ANSWERED: [&str; 4] = ["after reserve", "after charge", "after ship", "in close"];
/// The card is declined.
const UNPAID: [&str; 5] = ["after charge", "before cancel", "after cancel", "in close", REPLY];
/// The address does not exist.
const UNSHIPPABLE: [&str; 7] = [
    "after ship",
    "before refund",
    "after refund",
    "before cancel",
    "after cancel",
    "in close",
    REPLY,
];

fn shop(faults: fn(Trade) -> Faults) -> Shop {
    Shop::open(Kind::Phases, faults)
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
async fn done_while_replies_are_lost() {
    killed_at_each(&mut shop(loses_replies), &ANSWERED, Finisher::Completer, order, None).await;
}

#[tokio::test]
async fn undone_while_replies_are_lost() {
    let (shop, failed) = (&mut shop(loses_replies), Some("ship"));
    killed_at_each(shop, &UNSHIPPABLE, Finisher::Client, unshippable, failed).await;
}
