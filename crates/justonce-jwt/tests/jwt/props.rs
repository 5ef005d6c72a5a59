//! Whatever a stranger sends: it is refused, and nothing breaks.

use std::sync::{Arc, LazyLock};

use data_encoding::BASE64URL_NOPAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use justonce_http::{TokenVerifier, Verification};
use justonce_jwt::{KeySet, Verifier};
use justonce_testbed::{KeyServer, TokenAlgorithm};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::support::{assert_alice, claims, issuer, key, server, verifier, verify};

/// A verifier with keys, and a good token.
struct World {
    verifier: Arc<Verifier>,
    token: String,
    _server: KeyServer,
    _runtime: Runtime,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let key = key("a", TokenAlgorithm::EdDsa);
    let (server, token) = (server(&[&key]), key.token(&claims()));
    let verifier = runtime.block_on(async {
        let (verifier, _) = verifier(vec![issuer(&server)]);
        assert_alice(&verify(&verifier, &token).await);
        verifier
    });
    World { verifier, token, _server: server, _runtime: runtime }
});

/// Whether a header is refused at once, or needs newer keys.
fn is_refused(authorization: &[u8]) -> bool {
    let Ok(value) = HeaderValue::from_bytes(authorization) else { return true };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    match WORLD.verifier.verify(&headers) {
        Verification::Done(verified) => verified.is_err(),
        Verification::Pending(_) => true,
    }
}

/// Parts of JSON and of tokens, put together in any way.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(r#"{"alg":"EdDSA","kid":"a"}"#.to_owned()),
        Just(r#"{"alg":"none"}"#.to_owned()),
        Just(r#"{"iss":"https://login.example.com","aud":"shop","exp":9e9,"sub":"m"}"#.to_owned()),
        Just(String::new()),
        ".{0,40}",
    ];
    let encoded = piece.prop_map(|text| BASE64URL_NOPAD.encode(text.as_bytes()));
    vec(encoded, 0..5).prop_map(|parts| parts.join("."))
}

proptest! {
    #[test]
    fn h43_any_bytes_are_refused(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(is_refused(&bytes));
        prop_assert!(is_refused(&[b"Bearer ", &bytes[..]].concat()));
    }

    #[test]
    fn h43_any_pieces_of_tokens_are_refused(token in pieces()) {
        prop_assert!(is_refused(&[b"Bearer ", token.as_bytes()].concat()));
    }

    #[test]
    fn h43_a_good_token_with_another_letter_is_refused(
        at in any::<prop::sample::Index>(),
        with in "[A-Za-z0-9_.-]",
    ) {
        let good = &WORLD.token;
        let mut changed = good.clone().into_bytes();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != with.as_bytes()[0]);
        changed[at] = with.as_bytes()[0];
        prop_assert!(is_refused(&[b"Bearer ", &changed[..]].concat()));
        prop_assert!(!is_refused(&[b"Bearer ", good.as_bytes()].concat()));
    }

    #[test]
    fn h43_any_document_is_read_or_refused(text in ".{0,200}", bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(KeySet::parse(&bytes).is_err());
        let key = format!(r#"{{"keys":[{{"kty":"RSA","n":{text:?},"e":"AQAB"}}]}}"#);
        prop_assert!(KeySet::parse(key.as_bytes()).is_err());
    }
}
