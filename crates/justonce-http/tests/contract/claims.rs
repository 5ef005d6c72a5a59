//! Callers that are told apart by claims of verified tokens (h43), and by certificates (h42).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use justonce_core::{JsonPointer, OnLapsed, StateName};
use justonce_http::{
    CallerLimits, Claim, ClientAddress, ClientCertificate, KeySource, Rate, Rule, ScopePart,
    TokenRefusal, TokenVerifier, Verification, VerifiedClaims,
};
use serde_json::{Value, json};
use tower::Layer;

use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::Upstream;
use crate::support::world::{App, World, payment, request, rule, send};

/// Knows tokens by heart: `ISSUER/SUBJECT/NUMBER` is a good one, and the words of refusals are
/// refused so. Counts what it is asked.
#[derive(Default)]
struct ByHeart {
    asked: AtomicUsize,
}

impl ByHeart {
    fn verified(headers: &HeaderMap) -> Result<VerifiedClaims, TokenRefusal> {
        let line = headers.get(AUTHORIZATION).ok_or(TokenRefusal::Missing)?.to_str().unwrap();
        match line.split('/').collect::<Vec<_>>()[..] {
            [issuer, subject, number] => {
                let claims = json!({ "sub": subject, "jti": number, "act": { "sub": "a" } });
                Ok(VerifiedClaims::new(issuer, claims.as_object().cloned().unwrap()))
            }
            ["expired"] => Err(TokenRefusal::Expired),
            ["unavailable"] => Err(TokenRefusal::Unavailable(Duration::from_secs(7))),
            _ => Err(TokenRefusal::Signature),
        }
    }
}

impl TokenVerifier for ByHeart {
    fn verify<'a>(&'a self, headers: &'a HeaderMap) -> Verification<'a> {
        // Sometimes it has to wait for something.
        match self.asked.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Verification::Done(Self::verified(headers)),
            _ => Verification::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                Self::verified(headers)
            })),
        }
    }
}

fn by_claims(claims: &[&str]) -> Rule {
    let part = |claim: &&str| ScopePart::Claim(Claim::parse(claim).unwrap());
    rule(OnLapsed::Hold).scope(claims.iter().map(part).collect())
}

fn app(world: &World, upstream: &Upstream, rule: Rule) -> App {
    let verifier = Arc::<ByHeart>::default();
    world.layer().default_rule(rule).token_verifier(verifier).build().layer(upstream.clone())
}

async fn pay(app: &App, token: &str) -> Reply {
    let headers = [("idempotency-key", "abc"), ("authorization", token)];
    send(app, request("POST", "/payments", &headers, r#"{"amount":5}"#)).await
}

#[track_caller]
fn assert_replay(reply: &Reply, number: usize) {
    let got = (reply.text().to_owned(), reply.is_replay());
    assert_eq!(got, (format!("payment {number}"), true), "{reply:?}");
}

#[tokio::test]
async fn h43_a_refreshed_token_is_the_same_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    assert_eq!(pay(&app, "a/alice/1").await.text(), "payment 1");
    for number in 2..6 {
        assert_replay(&pay(&app, &format!("a/alice/{number}")).await, 1);
    }
    // Neither the token nor a claim is stored.
    let scope = world.record().await.subject.scope.as_str().to_owned();
    assert!(!scope.contains("alice") && !scope.contains("a/"), "{scope}");
    assert!(scope.contains("jwt_0=~"), "{scope}");
}

#[tokio::test]
async fn h43_callers_and_issuers_never_see_each_other() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    for (number, token) in
        ["a/alice/1", "a/mallory/1", "b/alice/1", "b/mallory/1"].iter().enumerate()
    {
        assert_eq!(pay(&app, token).await.text(), format!("payment {}", number + 1));
    }
    assert_replay(&pay(&app, "b/alice/2").await, 3);
}

#[tokio::test]
async fn h43_what_identifies_nobody_is_401_and_changes_nothing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    for (token, reason, error) in [
        (Some("expired"), "expired", true),
        (Some("forged"), "signature", true),
        (Some("a//1"), "claim", true),
        (None, "missing", false),
    ] {
        let mut headers = vec![("idempotency-key", "abc")];
        headers.extend(token.map(|token| ("authorization", token)));
        let reply = send(&app, request("POST", "/payments", &headers, "{}")).await;
        assert_problem(&reply, 401, "credentials-invalid");
        assert_eq!(reply.json()["reason"], reason);
        assert_eq!(reply.json()["retryable"], false);
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer"), "{challenge}");
        assert_eq!(challenge.contains("invalid_token"), error, "{challenge}");
        let state = request("GET", "/.well-known/idempotency/abc?path=/payments", &headers, "");
        assert_problem(&send(&app, state).await, 401, "credentials-invalid");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
    assert_eq!(world.state().await, StateName::Absent);
}

#[tokio::test]
async fn h43_while_nobody_can_verify_nothing_is_executed() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    assert_eq!(pay(&app, "a/alice/1").await.text(), "payment 1");
    for _ in 0..2 {
        let reply = pay(&app, "unavailable").await;
        assert_problem(&reply, 503, "identity-unavailable");
        assert_eq!(reply.header("retry-after"), Some("7"));
        assert_eq!(reply.json()["retryable"], true);
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (1, 2));
}

#[tokio::test]
async fn h43_all_parts_of_a_scope_count() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let mut by_both = by_claims(&["sub", "/act/sub"]);
    by_both = by_both.scope(vec![
        ScopePart::Claim(Claim::parse("sub").unwrap()),
        ScopePart::Claim(Claim::parse("/act/sub").unwrap()),
        ScopePart::Tenant("x-tenant".parse().unwrap()),
    ]);
    let app = app(&world, &upstream, by_both);
    let ask = async |tenant: &str, token: &str| {
        let headers = [("idempotency-key", "abc"), ("authorization", token), ("x-tenant", tenant)];
        send(&app, request("POST", "/payments", &headers, "{}")).await
    };
    assert_eq!(ask("t", "a/alice/1").await.text(), "payment 1");
    assert_eq!(ask("u", "a/alice/1").await.text(), "payment 2");
    assert_replay(&ask("t", "a/alice/2").await, 1);
}

#[tokio::test]
async fn h43_cookies_do_not_matter_where_a_token_counts() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    let ask = async |cookie: &str| {
        let headers =
            [("idempotency-key", "abc"), ("authorization", "a/alice/1"), ("cookie", cookie)];
        send(&app, request("POST", "/payments", &headers, "{}")).await
    };
    assert_eq!(ask("seen=1").await.text(), "payment 1");
    assert_replay(&ask("seen=2").await, 1);
}

#[tokio::test]
async fn h43_without_a_key_no_token_is_needed() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    let reply = send(&app, request("POST", "/login", &[("authorization", "forged")], "{}")).await;
    assert_eq!((reply.code(), reply.header("idempotency-status")), (201, Some("unprotected")));
    let reply = send(&app, request("GET", "/payments", &[], "")).await;
    assert_eq!(reply.code(), 201);
    assert_eq!((upstream.calls(), world.probe.log().len()), (2, 0));
}

#[tokio::test]
async fn h43_keys_from_the_body_and_from_the_content_need_a_token_too() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let place = JsonPointer::parse("/id").unwrap();
    let in_body = app(&world, &upstream, by_claims(&["sub"]).key_source(KeySource::Json(place)));
    let ask = async |app: &App, token: &str, body: &'static str| {
        send(app, request("POST", "/payments", &[("authorization", token)], body)).await
    };
    assert_problem(&ask(&in_body, "forged", r#"{"id":"k"}"#).await, 401, "credentials-invalid");
    assert_eq!(
        ask(&in_body, "forged", "{}").await.header("idempotency-status"),
        Some("unprotected")
    );
    assert_eq!(ask(&in_body, "a/alice/1", r#"{"id":"k"}"#).await.text(), "payment 2");
    assert_replay(&ask(&in_body, "a/alice/2", r#"{"id":"k"}"#).await, 2);
    let by_content = app(&world, &upstream, by_claims(&["sub"]).key_source(KeySource::Content));
    assert_problem(&ask(&by_content, "forged", "{}").await, 401, "credentials-invalid");
    assert_eq!(ask(&by_content, "a/alice/1", "{}").await.text(), "payment 3");
    assert_replay(&ask(&by_content, "a/alice/2", "{}").await, 3);
    assert_eq!(ask(&by_content, "a/mallory/2", "{}").await.text(), "payment 4");
    // Before the body is looked at.
    let small = by_claims(&["sub"]).key_source(KeySource::Content).max_request_bytes(1);
    let small = app(&world, &upstream, small);
    assert_problem(&ask(&small, "forged", "{}").await, 401, "credentials-invalid");
    assert_problem(&ask(&small, "a/alice/1", "{}").await, 413, "body-too-large");
}

#[tokio::test]
async fn h43_what_was_verified_in_front_of_the_layer_counts_only_without_a_verifier() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let claims = |subject: &str| {
        let claims: Value = json!({ "sub": subject });
        VerifiedClaims::new("a", claims.as_object().cloned().unwrap())
    };
    let with = |claims: VerifiedClaims| {
        let mut request = payment("abc");
        request.extensions_mut().insert(claims);
        request
    };
    let own = world.app_with(&upstream, by_claims(&["sub"]));
    assert_eq!(send(&own, with(claims("alice"))).await.text(), "payment 1");
    assert_replay(&send(&own, with(claims("alice"))).await, 1);
    assert_eq!(send(&own, with(claims("mallory"))).await.text(), "payment 2");
    assert_problem(&send(&own, payment("abc")).await, 401, "credentials-invalid");
    let asked = app(&world, &upstream, by_claims(&["sub"]));
    assert_problem(&send(&asked, with(claims("alice"))).await, 401, "credentials-invalid");
}

#[tokio::test]
async fn h43_the_service_is_told_what_was_verified() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = app(&world, &upstream, by_claims(&["sub"]));
    pay(&app, "a/alice/1").await;
    // The token itself goes on to the service.
    assert_eq!(upstream.heard(1).header("authorization"), Some("a/alice/1"));
}

#[tokio::test]
async fn h43_limits_count_for_the_caller_and_not_for_the_token() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let limits = CallerLimits::default().rate(Rate::new(1, Duration::from_secs(3600)));
    let app = app(&world, &upstream, by_claims(&["sub"]).caller_limits(limits));
    let ask = async |key: &str, token: &str| {
        let headers = [("idempotency-key", key), ("authorization", token)];
        let mut request = request("POST", "/payments", &headers, "{}");
        request.extensions_mut().insert(ClientAddress([127, 0, 0, 1].into()));
        send(&app, request).await
    };
    assert_eq!(ask("a", "a/alice/1").await.text(), "payment 1");
    assert_problem(&ask("b", "a/alice/2").await, 429, "limit-reached");
    assert_eq!(ask("b", "a/bob/1").await.text(), "payment 2");
    // Without a key too, where the token is good; otherwise for the address.
    let bare = async |token: &str| {
        let mut request = request("POST", "/payments", &[("authorization", token)], "{}");
        request.extensions_mut().insert(ClientAddress([127, 0, 0, 1].into()));
        send(&app, request).await.code()
    };
    assert_eq!(bare("a/alice/3").await, 429);
    assert_eq!((bare("forged").await, bare("expired").await), (201, 429));
}

/// A payment of a client with a certificate.
async fn pay_as(app: &App, certificate: Option<(&str, &str)>, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("idempotency-key", "abc")], headers].concat();
    let mut request = request("POST", "/payments", &headers, r#"{"amount":5}"#);
    if let Some((issuer, subject)) = certificate {
        request.extensions_mut().insert(ClientCertificate::new(issuer, subject));
    }
    send(app, request).await
}

#[tokio::test]
async fn h42_without_other_credentials_a_certificate_is_the_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let (alice, mallory) = (Some(("CA", "alice")), Some(("CA", "mallory")));
    assert_eq!(pay_as(&app, alice, &[]).await.text(), "payment 1");
    assert_eq!(pay_as(&app, mallory, &[]).await.text(), "payment 2");
    assert_eq!(pay_as(&app, Some(("CB", "alice")), &[]).await.text(), "payment 3");
    assert_replay(&pay_as(&app, alice, &[("cookie", "seen=1")]).await, 1);
    // What is blank names nobody; what is not comes first.
    assert_replay(&pay_as(&app, mallory, &[("cookie", "seen=2")]).await, 2);
    assert_eq!(pay_as(&app, alice, &[("x-api-key", "k")]).await.text(), "payment 4");
    assert_replay(&pay_as(&app, mallory, &[("x-api-key", "k")]).await, 4);
    assert_eq!(pay_as(&app, alice, &[("authorization", "k")]).await.text(), "payment 5");
    assert_replay(&pay_as(&app, None, &[("authorization", "k")]).await, 5);
    // No header stands for a certificate.
    let names = ["x-client-cert", "x-forwarded-client-cert", "x-ssl-client-s-dn", "client-cert"];
    for name in names {
        let reply = pay_as(&app, None, &[(name, "alice"), ("cookie", "s=1")]).await;
        assert_eq!(reply.text(), "payment 6", "{name}");
    }
}

#[tokio::test]
async fn h42_a_scope_may_want_a_certificate() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).scope(vec![ScopePart::Certificate]));
    let alice = Some(("CA", "alice"));
    assert_eq!(pay_as(&app, alice, &[("authorization", "a")]).await.text(), "payment 1");
    assert_replay(&pay_as(&app, alice, &[("authorization", "b")]).await, 1);
    // Without one only the very same cookies count.
    assert_eq!(pay_as(&app, None, &[("cookie", "s=1")]).await.text(), "payment 2");
    assert_problem(&pay_as(&app, None, &[("cookie", "s=2")]).await, 409, "caller-differs");
    let mut seen = HashMap::new();
    for issuer in ["CA", "CAa"] {
        for subject in ["b", "ab"] {
            let reply = pay_as(&app, Some((issuer, subject)), &[]).await;
            assert!(!reply.is_replay());
            assert_eq!(seen.insert(reply.text().to_owned(), (issuer, subject)), None);
        }
    }
}
