//! Callers that are known by their tokens: h43.

use justonce_testbed::{KeyAnswer, KeyServer, SigningKey, TokenAlgorithm, jwks, unsigned};
use serde_json::{Value, json};

use super::every::{on_every_store, on_shared_stores};
use super::http2;
use super::place::Place;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::upstream::Message;

on_every_store! {
    h43_a_refreshed_token_is_the_same_caller,
    h43_an_invalid_token_is_401_and_nothing_happens,
    h43_callers_and_issuers_never_see_each_other,
    h43_without_keys_nothing_is_executed,
}

on_shared_stores! {
    h43_another_gateway_knows_the_caller_too,
}

const ISSUER: &str = "https://login.example.com";

/// An issuer with one key.
pub(crate) struct Issuer {
    pub(crate) key: SigningKey,
    pub(crate) server: KeyServer,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let key = SigningKey::new("a", TokenAlgorithm::Es256).unwrap();
        let server = KeyServer::start(jwks(&[&key])).unwrap();
        Self { key, server }
    }

    /// Settings with this issuer, and a scope by `sub`.
    pub(crate) fn settings(&self, more: &str) -> String {
        format!("{}{more}\n[defaults]\nscope = ['jwt:sub']\n", self.table())
    }

    /// Settings with this issuer.
    pub(crate) fn table(&self) -> String {
        let url = self.server.url();
        format!("[jwt.login]\nissuer = '{ISSUER}'\naudience = 'shop'\njwks = '{url}'\n")
    }

    /// A token of a caller, another one for each number.
    pub(crate) fn token(&self, subject: &str, number: u32) -> String {
        self.key.token(&claims(subject, number))
    }
}

/// Claims that are in order.
pub(crate) fn claims(subject: &str, number: u32) -> Value {
    let exp = now() + 600;
    json!({ "iss": ISSUER, "aud": ["shop"], "sub": subject, "jti": number, "exp": exp })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// A payment with this token.
pub(crate) fn pay(stage: &Stage, token: &str) -> Message {
    let bearer = format!("Bearer {token}");
    let headers = [("idempotency-key", "abc"), ("authorization", bearer.as_str())];
    stage.ask("POST /payments", &headers, BODY)
}

fn h43_a_refreshed_token_is_the_same_caller(place: &Place) {
    let issuer = Issuer::new();
    let stage = place.counting(&issuer.settings(""));
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    assert_replay(&pay(&stage, &issuer.token("alice", 2)), 1);
    // The service gets the token as it came.
    let first = stage.service.heard(1);
    assert!(first.header("authorization").unwrap().starts_with("Bearer "));
    let bearer = format!("Bearer {}", issuer.token("alice", 3));
    let headers = [("idempotency-key", "abc"), ("authorization", bearer.as_str())];
    let answer = http2::post(stage.gateway.address, "/payments", &headers, BODY);
    assert_eq!((answer.text().as_str(), answer.is_replay()), ("payment 1", true));
    let path = "GET /.well-known/idempotency/abc?path=/payments";
    assert_eq!(stage.ask(path, &headers, "").json()["state"], "completed");
    let metrics = stage.metrics();
    assert!(metrics.contains("justonce_jwks_keys{issuer=\"login\"} 1"), "{metrics}");
    assert!(metrics.contains("justonce_token_checks_total{result=\"cached\"} 1"), "{metrics}");
    assert_eq!(stage.service.calls(), 1);
}

/// Tokens that are none, each with what is said about it.
fn bad_tokens(issuer: &Issuer) -> Vec<(String, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut claims = claims("alice", 1);
        claims[name] = value;
        issuer.key.token(&claims)
    };
    let forger = SigningKey::new("a", TokenAlgorithm::Es256).unwrap();
    let none = json!({ "alg": "none", "kid": "a" });
    let brought = json!({ "alg": "ES256", "jwk": forger.jwk() });
    vec![
        (forger.token(&claims("alice", 1)), "signature"),
        (forger.token_with(&brought, &claims("alice", 1)), "key"),
        (format!("{}.", unsigned(&none, &claims("alice", 1))), "algorithm"),
        (with("exp", json!(now() - 60)), "expired"),
        (with("nbf", json!(now() + 3600)), "not_yet_valid"),
        (with("aud", json!("bank")), "audience"),
        (with("iss", json!("https://evil.example.com")), "issuer"),
        (with("sub", json!("")), "claim"),
        ("opaque".to_owned(), "malformed"),
        (format!("{}a", "a.".repeat(10_000)), "too_long"),
    ]
}

fn h43_an_invalid_token_is_401_and_nothing_happens(place: &Place) {
    let issuer = Issuer::new();
    // So that the names of keys below cause no waiting.
    let stage = place.counting(&issuer.settings(""));
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    let steps = stage.steps();
    for (token, reason) in bad_tokens(&issuer) {
        let answer = pay(&stage, &token);
        assert_problem(&answer, 401, "credentials-invalid");
        assert_eq!(answer.json()["reason"], reason);
        assert!(answer.header("www-authenticate").unwrap().contains("invalid_token"));
        let bearer = format!("Bearer {token}");
        let headers = [("idempotency-key", "abc"), ("authorization", bearer.as_str())];
        let over_http2 = http2::post(stage.gateway.address, "/payments", &headers, BODY);
        assert_eq!(
            (over_http2.status.as_u16(), over_http2.code().as_str()),
            (401, "credentials-invalid")
        );
        let path = "GET /.well-known/idempotency/abc?path=/payments";
        assert_problem(&stage.ask(path, &headers, ""), 401, "credentials-invalid");
    }
    let none = stage.ask("POST /payments", &[("idempotency-key", "abc")], BODY);
    assert_problem(&none, 401, "credentials-invalid");
    assert_eq!(
        (none.json()["reason"].as_str(), none.header("www-authenticate")),
        (Some("missing"), Some("Bearer"))
    );
    let good = format!("Bearer {}", issuer.token("alice", 1));
    let twice = [("idempotency-key", "abc"), ("authorization", &*good), ("authorization", &*good)];
    assert_problem(&stage.ask("POST /payments", &twice, BODY), 401, "credentials-invalid");
    assert_eq!((stage.service.calls(), stage.steps()), (1, steps));
    let metrics = stage.metrics();
    let counted = "idempotency_credentials_refused_total{route=\"default\",reason=\"signature\"} 3";
    assert!(metrics.contains(counted), "{metrics}");
    let page = stage.ask("GET /.well-known/idempotency/errors/credentials-invalid", &[], "");
    assert!(page.text().contains("jwt:sub"));
}

fn h43_callers_and_issuers_never_see_each_other(place: &Place) {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let more = format!(
        "[jwt.partner]\nissuer = 'https://partner.example.com'\naudience = 'shop'\njwks = '{}'\n",
        other.server.url()
    );
    let stage = place.counting(&issuer.settings(&more));
    let of_partner = |subject: &str| {
        let mut claims = claims(subject, 1);
        claims["iss"] = json!("https://partner.example.com");
        other.key.token(&claims)
    };
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    assert_fresh(&pay(&stage, &issuer.token("mallory", 1)), 2);
    assert_fresh(&pay(&stage, &of_partner("alice")), 3);
    assert_replay(&pay(&stage, &issuer.token("alice", 2)), 1);
    assert_replay(&pay(&stage, &of_partner("alice")), 3);
    // Neither signs for the other.
    let crossed = other.key.token(&claims("alice", 1));
    assert_problem(&pay(&stage, &crossed), 401, "credentials-invalid");
}

fn h43_without_keys_nothing_is_executed(place: &Place) {
    let issuer = Issuer::new();
    for answer in [KeyAnswer::Status(500), KeyAnswer::Document(b"<html>".to_vec())] {
        issuer.server.answer(answer);
        let stage = place.counting(&issuer.settings("unknown_key_pause = '1s'"));
        let token = issuer.token("alice", 1);
        let refused = pay(&stage, &token);
        assert_problem(&refused, 503, "identity-unavailable");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(stage.service.calls(), 0);
        // The keys are looked for by themselves.
        issuer.server.serve(jwks(&[&issuer.key]));
        let answered = crate::support::client::until(
            "the keys",
            || pay(&stage, &token),
            |answer| answer.status() != 503,
        );
        assert_eq!(answered.status(), 201);
        assert_eq!(stage.service.calls(), if answered.is_replay() { 0 } else { 1 });
    }
}

fn h43_another_gateway_knows_the_caller_too(place: &Place) {
    let issuer = Issuer::new();
    let stage = place.counting(&issuer.settings(""));
    let second = place.second(&stage);
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    let at_second = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("idempotency-key", "abc"), ("authorization", bearer.as_str())];
        Call::send(second.address, "POST /payments", &headers, BODY).answer()
    };
    assert_replay(&at_second(&issuer.token("alice", 2)), 1);
    assert_fresh(&at_second(&issuer.token("mallory", 1)), 2);
}
