//! A verifier, issuers and tokens.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use justonce_core::worker::Schedule;
use justonce_core::{ManualClock, Timestamp};
use justonce_http::{TokenRefusal, TokenVerifier, Verification, VerifiedClaims};
use justonce_jwt::{IssuerSettings, KeySource, Verifier, VerifierParts};
use justonce_testbed::{KeyServer, SigningKey, TokenAlgorithm, jwks};
use serde_json::{Value, json};

/// What the clock shows when a test begins, in seconds.
pub(crate) const NOW: u64 = 1_700_000_000;
pub(crate) const ISSUER: &str = "https://login.example.com";
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What a verification ends with.
pub(crate) type Verified = Result<VerifiedClaims, TokenRefusal>;

pub(crate) fn key(id: &str, algorithm: TokenAlgorithm) -> SigningKey {
    SigningKey::new(id, algorithm).unwrap()
}

/// A key of the usual kind.
pub(crate) fn es256(id: &str) -> SigningKey {
    key(id, TokenAlgorithm::Es256)
}

pub(crate) fn server(keys: &[&SigningKey]) -> KeyServer {
    KeyServer::start(jwks(keys)).unwrap()
}

/// Claims that are in order.
pub(crate) fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "shop", "sub": "alice", "exp": NOW + 300 })
}

/// An issuer whose keys are at a server, and which is asked again for unknown keys at once.
pub(crate) fn issuer(server: &KeyServer) -> IssuerSettings {
    let keys = KeySource::url(&server.url(), None).unwrap();
    IssuerSettings {
        refresh: HOUR,
        unknown_key_pause: Duration::ZERO,
        ..IssuerSettings::new("login", ISSUER, vec!["shop".to_owned()], keys)
    }
}

/// A verifier on a clock.
pub(crate) fn verifier(issuers: Vec<IssuerSettings>) -> (Arc<Verifier>, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_millis(NOW * 1000));
    let parts = VerifierParts {
        clock: Arc::new(clock.clone()),
        schedule: Arc::new(|pause| Schedule::every("jwks", pause)),
    };
    (Verifier::new(issuers, parts), clock)
}

/// Headers with this `Authorization`.
pub(crate) fn headers(authorization: &str) -> HeaderMap {
    let value = HeaderValue::from_bytes(authorization.as_bytes()).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

pub(crate) async fn verify_in(verifier: &Verifier, headers: &HeaderMap) -> Verified {
    match verifier.verify(headers) {
        Verification::Done(verified) => verified,
        Verification::Pending(pending) => pending.await,
    }
}

/// Verifies a token.
pub(crate) async fn verify(verifier: &Verifier, token: &str) -> Verified {
    verify_in(verifier, &headers(&format!("Bearer {token}"))).await
}

/// Whether a token is decided about without waiting.
pub(crate) fn is_decided(verifier: &Verifier, token: &str) -> bool {
    matches!(verifier.verify(&headers(&format!("Bearer {token}"))), Verification::Done(_))
}

#[track_caller]
pub(crate) fn assert_alice(verified: &Verified) {
    let claims = verified.as_ref().expect("a good token");
    assert_eq!((claims.issuer(), &claims.claims()["sub"]), (ISSUER, &json!("alice")));
}

#[track_caller]
pub(crate) fn assert_unavailable(verified: &Verified) {
    assert!(matches!(verified, Err(TokenRefusal::Unavailable(_))), "{verified:?}");
}
