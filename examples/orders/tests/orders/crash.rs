//! The crash matrix: die at a point, come back, and end well.

use justonce_orders::order::{Order, Reply};

use crate::client::{ask, ask_until_answered};
use crate::shop::{Finisher, Shop};

/// The point after which an order has ended.
pub(crate) const REPLY: &str = "before the reply";

/// Kills the order service at each of these points, in the middle of an order of its own; then a
/// new one takes its place, and the order ends as it should.
pub(crate) async fn killed_at_each(
    shop: &mut Shop,
    points: &[&str],
    finisher: Finisher,
    order: impl Fn(String) -> Order,
    fails_at: Option<&str>,
) {
    for point in points {
        let order = order(format!("killed-{}", point.replace(' ', "-")));
        killed_at(shop, point, finisher, &order, fails_at).await;
    }
    shop.everything_arrives_again().await;
    assert_eq!(shop.wrong(), [""; 0]);
}

async fn killed_at(
    shop: &mut Shop,
    point: &str,
    finisher: Finisher,
    order: &Order,
    fails_at: Option<&str>,
) {
    // Without a completer, so that the point is reached by the client's request.
    let service = shop.order_service(Finisher::Client, Some(point));
    let killed = async {
        // A client whose service says "later" asks again: only a death ends this.
        while ask(&service, order).await.is_ok() {}
    };
    tokio::time::timeout(crate::process::LIMIT, killed).await.expect(point);
    service.dies();

    let service = shop.order_service(finisher, None);
    let driven_on = finisher == Finisher::Completer && point != REPLY;
    if driven_on {
        assert_eq!(service.said("completer: "), "completer: 1 ended", "{point}");
    }
    let (reply, heard) = ask_until_answered(&service, order).await;
    assert!(!driven_on || heard.replayed, "{point}: it had ended");
    match (&reply, fails_at) {
        (Reply::Done { .. }, None) => {}
        (Reply::RolledBack { step, .. }, Some(fails_at)) => assert_eq!(step, fails_at),
        _ => panic!("{point}: {reply:?}"),
    }
    shop.heard(order, &reply);
    // A duplicate that comes afterwards hears the same.
    let (again, heard) = ask_until_answered(&service, order).await;
    assert!(heard.replayed);
    shop.heard(order, &again);
}
