//! Many clients at once, each asking for the same, while the order service dies under them.

use futures_util::future::join_all;
use justonce_orders::order::{Order, Reply};

use crate::client::{ask, ask_until_answered, order, unpaid, unshippable};
use crate::shop::{Finisher, Kind, Shop, loses_replies};

/// How many clients ask for the same order at once.
const CLIENTS: usize = 8;

/// Orders of all kinds, each asked for by many at once; the service dies in the middle of it. All
/// hear the same, also those who ask later.
async fn many_at_once(kind: Kind, dies_at: &str) {
    let mut shop = Shop::open(kind, loses_replies);
    let orders: Vec<Order> = (0..3)
        .flat_map(|n| {
            [order(format!("o-{n}")), unpaid(format!("u-{n}")), unshippable(format!("s-{n}"))]
        })
        .collect();
    let crowd = || orders.iter().flat_map(|order| std::iter::repeat_n(order, CLIENTS));

    let service = shop.order_service(Finisher::Completer, Some(dies_at));
    let killed = join_all(crowd().map(async |order| ask(&service, order).await.is_ok())).await;
    assert!(killed.contains(&false), "somebody was asking when it died");
    service.dies();

    for _ in ["at once", "afterwards"] {
        let service = shop.order_service(Finisher::Completer, None);
        let asked = crowd().map(async |order| (order, ask_until_answered(&service, order).await.0));
        for (order, reply) in join_all(asked).await {
            let is_done = matches!(reply, Reply::Done { .. });
            assert_eq!(is_done, order.order.starts_with('o'), "{reply:?}");
            shop.heard(order, &reply);
        }
    }
    shop.everything_arrives_again().await;
    assert_eq!(shop.wrong(), [""; 0]);
}

#[tokio::test]
async fn of_a_saga_going_ahead() {
    many_at_once(Kind::Saga, "after charge").await;
}

#[tokio::test]
async fn of_a_saga_going_back() {
    many_at_once(Kind::Saga, "after refund").await;
}

#[tokio::test]
async fn of_phases_going_ahead() {
    many_at_once(Kind::Phases, "after charge").await;
}

#[tokio::test]
async fn of_phases_going_back() {
    many_at_once(Kind::Phases, "after refund").await;
}

#[tokio::test]
async fn one_key_for_two_orders_is_refused() {
    for kind in [Kind::Saga, Kind::Phases] {
        let mut shop = Shop::open(kind, loses_replies);
        let service = shop.order_service(Finisher::Client, None);
        let first = order("o");
        let (reply, _) = ask_until_answered(&service, &first).await;
        shop.heard(&first, &reply);
        let other = Order { item: "coffee".to_owned(), ..first };
        assert_eq!(ask(&service, &other).await.unwrap().status, 422);
        assert_eq!(shop.wrong(), [""; 0]);
    }
}
