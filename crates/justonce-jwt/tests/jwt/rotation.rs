//! Keys that come and go, and tokens that expire.

use std::sync::Arc;
use std::time::Duration;

use justonce_http::TokenRefusal;
use justonce_jwt::IssuerSettings;
use justonce_testbed::{KeyAnswer, jwks};
use serde_json::json;

use crate::support::{
    HOUR, NOW, assert_alice, assert_unavailable, claims, es256, is_decided, issuer, server,
    verifier, verify,
};

#[tokio::test]
async fn h43_a_new_key_counts_at_once_and_a_removed_one_no_more() {
    let (old, new) = (es256("old"), es256("new"));
    let server = server(&[&old]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    let (before, after) = (old.token(&claims()), new.token(&claims()));
    assert_alice(&verify(&verifier, &before).await);
    server.serve(jwks(&[&old, &new]));
    assert_alice(&verify(&verifier, &after).await);
    assert_alice(&verify(&verifier, &before).await);
    assert_eq!(server.asked(), 2);
    server.serve(jwks(&[&new]));
    // Something has to cause a fetch; then what was verified before counts no more either.
    let unknown = es256("x").token(&claims());
    assert_eq!(verify(&verifier, &unknown).await, Err(TokenRefusal::Key));
    assert_eq!(verify(&verifier, &before).await, Err(TokenRefusal::Key));
    assert_alice(&verify(&verifier, &after).await);
}

#[tokio::test]
async fn h43_names_of_keys_that_strangers_make_up_cause_one_fetch() {
    let key = es256("a");
    let server = server(&[&key]);
    let settings = IssuerSettings { unknown_key_pause: HOUR, ..issuer(&server) };
    let (verifier, _) = verifier(vec![settings]);
    assert_alice(&verify(&verifier, &key.token(&claims())).await);
    let forged = es256("x");
    for number in 0..300 {
        let header = json!({ "alg": "ES256", "kid": format!("made-up-{number}") });
        let token = forged.token_with(&header, &claims());
        assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Key));
    }
    assert_alice(&verify(&verifier, &key.token(&claims())).await);
    assert_eq!(server.asked(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h43_what_is_refused_anyway_causes_no_fetch() {
    let server = server(&[&es256("a")]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    server.until_asked(1).unwrap();
    let mut expired = claims();
    expired["exp"] = json!(NOW - 60);
    let token = es256("x").token(&expired);
    assert!(is_decided(&verifier, &token));
    assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Expired));
    assert_eq!(server.asked(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h43_rotation_under_load_refuses_no_good_token() {
    let mut keys = vec![es256("0")];
    let server = server(&[&keys[0]]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    for round in 1..8 {
        keys.push(es256(&round.to_string()));
        let last_two: Vec<_> = keys.iter().rev().take(2).collect();
        server.serve(jwks(&last_two));
        let tokens: Vec<String> = (0..20).map(|_| last_two[0].token(&claims())).collect();
        let all = tokens.into_iter().map(|token| {
            let verifier = Arc::clone(&verifier);
            tokio::spawn(async move { verify(&verifier, &token).await })
        });
        for one in all.collect::<Vec<_>>() {
            assert_alice(&one.await.unwrap());
        }
    }
}

#[tokio::test]
async fn h43_without_keys_nobody_is_verified_until_there_are_some() {
    let key = es256("a");
    let server = server(&[&key]);
    let token = key.token(&claims());
    for answer in [
        KeyAnswer::Status(500),
        KeyAnswer::Status(302),
        KeyAnswer::HangUp,
        KeyAnswer::Document(b"<html>".to_vec()),
        KeyAnswer::Document(b"{\"keys\":[]}".to_vec()),
        KeyAnswer::Document(vec![b' '; justonce_jwt::MAX_DOCUMENT_BYTES + 1]),
        KeyAnswer::Endless(64 * 1024 * 1024),
    ] {
        server.answer(answer.clone());
        let (verifier, _) = verifier(vec![issuer(&server)]);
        assert_unavailable(&verify(&verifier, &token).await);
        server.serve(jwks(&[&key]));
        assert_alice(&verify(&verifier, &token).await);
    }
}

#[tokio::test(start_paused = true)]
async fn h43_a_server_of_keys_that_is_silent_holds_nobody_for_long() {
    let key = es256("a");
    let server = server(&[&key]);
    server.answer(KeyAnswer::Silence);
    let settings = IssuerSettings { unknown_key_pause: HOUR, ..issuer(&server) };
    let (verifier, _) = verifier(vec![settings]);
    let token = key.token(&claims());
    let begin = tokio::time::Instant::now();
    assert_unavailable(&verify(&verifier, &token).await);
    assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
    // Nobody waits for it again before the pause is over, and nobody is told to wait that long: the
    // keys are looked for by themselves.
    let again = verify(&verifier, &token).await;
    let Err(TokenRefusal::Unavailable(time)) = again else { panic!("{again:?}") };
    assert!(time <= Duration::from_secs(30), "{time:?}");
    assert!(begin.elapsed() <= Duration::from_secs(6));
}

#[tokio::test]
async fn h43_old_keys_count_while_there_are_no_newer_ones_but_not_for_ever() {
    let key = es256("a");
    let server = server(&[&key]);
    let max_age = Duration::from_secs(3600);
    let (long, _) = verifier(vec![IssuerSettings { max_age, ..issuer(&server) }]);
    let token = key.token(&claims());
    assert_alice(&verify(&long, &token).await);
    server.answer(KeyAnswer::Status(503));
    // It may be signed with a key that could not be had.
    assert_unavailable(&verify(&long, &es256("b").token(&claims())).await);
    assert_alice(&verify(&long, &token).await);
    assert_alice(&verify(&long, &key.token(&claims())).await);
    // The same where keys are too old at once: a cached token counts no more, either.
    server.serve(jwks(&[&key]));
    let settings = IssuerSettings { max_age: Duration::ZERO, ..issuer(&server) };
    let (short, _) = verifier(vec![settings]);
    assert_unavailable(&verify(&short, &token).await);
}

#[tokio::test]
async fn h43_a_token_that_was_verified_expires_all_the_same() {
    let key = es256("a");
    let server = server(&[&key]);
    let (verifier, clock) = verifier(vec![issuer(&server)]);
    let token = key.token(&claims());
    assert_alice(&verify(&verifier, &token).await);
    clock.advance(Duration::from_secs(329));
    assert_alice(&verify(&verifier, &token).await);
    clock.advance(Duration::from_secs(1));
    assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Expired));
    assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Expired));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuers_that_are_as_before_keep_their_keys() {
    let key = es256("a");
    let server = server(&[&key]);
    let (first, _) = verifier(vec![issuer(&server)]);
    let token = key.token(&claims());
    assert_alice(&verify(&first, &token).await);
    assert!(Arc::ptr_eq(&first, &first.renewed(vec![issuer(&server)])));
    let other = IssuerSettings {
        name: "other".to_owned(),
        issuer: "https://other".to_owned(),
        ..issuer(&server)
    };
    let more = first.renewed(vec![other, issuer(&server)]);
    assert_alice(&verify(&more, &token).await);
    // The first one's, and those of the new one.
    server.until_asked(2).unwrap();
    assert_eq!(server.asked(), 2);
    let audience = vec!["bank".to_owned()];
    let changed = more.renewed(vec![IssuerSettings { audience, ..issuer(&server) }]);
    assert_eq!(verify(&changed, &token).await, Err(TokenRefusal::Audience));
    let none = changed.renewed(Vec::new());
    assert_eq!(verify(&none, &token).await, Err(TokenRefusal::Missing));
}

#[tokio::test]
async fn an_issuer_that_is_away_keeps_its_keys_when_its_settings_change() {
    let key = es256("a");
    let (place, elsewhere) = (server(&[&key]), server(&[&key]));
    let (first, _) = verifier(vec![issuer(&place)]);
    let token = key.token(&claims());
    assert_alice(&verify(&first, &token).await);
    place.answer(KeyAnswer::Status(503));
    elsewhere.answer(KeyAnswer::Status(503));
    let leeway = Duration::from_secs(1);
    let changed = first.renewed(vec![IssuerSettings { leeway, ..issuer(&place) }]);
    assert_alice(&verify(&changed, &token).await);
    // Keys of another place are others.
    let moved = changed.renewed(vec![issuer(&elsewhere)]);
    assert_unavailable(&verify(&moved, &token).await);
    // One that answers says which keys count.
    place.serve(jwks(&[&es256("b")]));
    let asked = changed.renewed(vec![IssuerSettings { max_age: HOUR, ..issuer(&place) }]);
    assert_eq!(verify(&asked, &token).await, Err(TokenRefusal::Key));
}
