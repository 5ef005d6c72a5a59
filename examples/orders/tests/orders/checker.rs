//! The checker can fail: with services that do not recognise repetitions, it finds doubles.

use justonce_orders::service::Faults;
use justonce_orders::trade::Trade;

use crate::client::{ask_until_answered, order, unshippable};
use crate::shop::{Finisher, Kind, Shop};

/// A payment without the layer, whose first answers are lost.
fn forgetful(trade: Trade) -> Faults {
    let is_payment = trade == Trade::Payment;
    Faults { loses_replies: is_payment, forgets_keys: is_payment, ..Faults::default() }
}

async fn doubles(kind: Kind) {
    let mut shop = Shop::open(kind, forgetful);
    let service = shop.order_service(Finisher::Client, None);
    for order in [order("charged"), unshippable("refunded")] {
        let (reply, _) = ask_until_answered(&service, &order).await;
        shop.heard(&order, &reply);
    }
    let wrong = shop.wrong();
    for found in ["charged: payment did it twice", "refunded: payment has one key twice"] {
        assert!(wrong.iter().any(|wrong| wrong.starts_with(found)), "{found}: {wrong:?}");
    }
}

#[tokio::test]
async fn doubles_of_a_saga_are_found() {
    doubles(Kind::Saga).await;
}

#[tokio::test]
async fn doubles_of_phases_are_found() {
    doubles(Kind::Phases).await;
}
