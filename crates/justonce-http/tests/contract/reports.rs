//! Where requests come from: h49.

use justonce_core::OnLapsed;
use justonce_core::store::ListQuery;
use justonce_http::{ClientAddress, Rule, ScopePart};

use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::Upstream;
use crate::support::world::{App, World, request, rule, send};

/// A payment with the key `abc` from an address.
async fn pay_from(app: &App, address: Option<&str>, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("idempotency-key", "abc")], headers].concat();
    let mut request = request("POST", "/payments", &headers, "{}");
    if let Some(address) = address {
        request.extensions_mut().insert(ClientAddress(address.parse().unwrap()));
    }
    send(app, request).await
}

fn by(parts: Vec<ScopePart>) -> Rule {
    rule(OnLapsed::Hold).scope(parts)
}

#[tokio::test]
async fn h49_the_address_can_be_the_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by(vec![ScopePart::Address]));
    let addresses = ["203.0.113.9", "203.0.113.10", "2001:db8::9"];
    for (number, address) in addresses.iter().enumerate() {
        let reply = pay_from(&app, Some(address), &[]).await;
        assert_eq!(reply.text(), format!("payment {}", number + 1), "{address}");
    }
    for same in ["203.0.113.9", "::ffff:203.0.113.9"] {
        // Whatever else the request says: cookies do not count for a caller who is known.
        let reply = pay_from(&app, Some(same), &[("cookie", same), ("authorization", same)]).await;
        assert_eq!((reply.text(), reply.is_replay()), ("payment 1", true), "{same}");
    }
    // The state is told to the same address only.
    for (address, state) in [("203.0.113.9", "completed"), ("203.0.113.77", "absent")] {
        let mut asked = request("GET", "/.well-known/idempotency/abc?path=/payments", &[], "");
        asked.extensions_mut().insert(ClientAddress(address.parse().unwrap()));
        assert_eq!(send(&app, asked).await.json()["state"], state);
    }
    // Only a hash of it is kept.
    let kept = world.engine.store().list(&ListQuery::default()).await.unwrap();
    let kept = format!("{:?}", kept.records);
    assert!(!kept.contains("203.0.113.9") && kept.contains("address_0"), "{kept}");
}

#[tokio::test]
async fn h49_a_caller_whose_address_is_not_known_shares_nothing_with_others() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by(vec![ScopePart::Address]));
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &[]).await.text(), "payment 1");
    assert_eq!(pay_from(&app, None, &[("cookie", "s=1")]).await.text(), "payment 2");
    assert!(pay_from(&app, None, &[("cookie", "s=1")]).await.is_replay());
    assert_problem(&pay_from(&app, None, &[("cookie", "s=2")]).await, 409, "caller-differs");
}

#[tokio::test]
async fn h49_the_address_counts_beside_other_parts() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let user = ScopePart::Principal("x-user".parse().unwrap());
    let app = world.app_with(&upstream, by(vec![user, ScopePart::Address]));
    let (alice, bob) = ([("x-user", "alice")], [("x-user", "bob")]);
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &alice).await.text(), "payment 1");
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &bob).await.text(), "payment 2");
    assert_eq!(pay_from(&app, Some("203.0.113.10"), &alice).await.text(), "payment 3");
    assert_eq!(pay_from(&app, None, &alice).await.text(), "payment 4");
    assert!(pay_from(&app, Some("203.0.113.9"), &alice).await.is_replay());
}
