//! Tokens that nobody has issued, or not for us.

use data_encoding::BASE64URL_NOPAD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use justonce_http::TokenRefusal;
use justonce_jwt::{Algorithm, IssuerSettings, MAX_TOKEN_BYTES};
use justonce_testbed::{SigningKey, TokenAlgorithm, unsigned};
use ring::hmac;
use serde_json::{Value, json};

use crate::support::{
    ISSUER, NOW, assert_alice, claims, es256, headers, issuer, key, server, verifier, verify,
    verify_in,
};

#[tokio::test]
async fn h43_every_kind_of_signature_is_verified() {
    for algorithm in TokenAlgorithm::ALL {
        let key = key("a", algorithm);
        let server = server(&[&key]);
        let (verifier, _) = verifier(vec![issuer(&server)]);
        let token = key.token(&claims());
        assert_alice(&verify(&verifier, &token).await);
        assert_alice(&verify(&verifier, &token).await);
        // Without the name of a key all are tried.
        let header = json!({ "alg": algorithm.as_str() });
        assert_alice(&verify(&verifier, &key.token_with(&header, &claims())).await);
        assert_eq!(server.asked(), 1, "{algorithm:?}");
    }
}

#[tokio::test]
async fn h43_a_token_that_was_changed_is_refused() {
    for algorithm in TokenAlgorithm::ALL {
        let key = key("a", algorithm);
        let server = server(&[&key]);
        let (verifier, _) = verifier(vec![issuer(&server)]);
        let token = key.token(&claims());
        assert_alice(&verify(&verifier, &token).await);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let header = signed.split_once('.').unwrap().0;
        let mut other = claims();
        other["sub"] = json!("mallory");
        let other = BASE64URL_NOPAD.encode(other.to_string().as_bytes());
        let taken = format!("{header}.{other}.{signature}");
        assert_eq!(verify(&verifier, &taken).await, Err(TokenRefusal::Signature));
        let good = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        for at in [0, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let changed = format!("{signed}.{}", BASE64URL_NOPAD.encode(&bad));
            let refused = verify(&verifier, &changed).await;
            assert_eq!(refused, Err(TokenRefusal::Signature), "{algorithm:?} {at}");
        }
        for length in [0, 1, good.len() - 1] {
            let short = format!("{signed}.{}", BASE64URL_NOPAD.encode(&good[..length]));
            assert_eq!(verify(&verifier, &short).await, Err(TokenRefusal::Signature), "{length}");
        }
        // ECDSA accepts no signature of zeros.
        let zeros = format!("{signed}.{}", BASE64URL_NOPAD.encode(&vec![0; good.len()]));
        assert_eq!(verify(&verifier, &zeros).await, Err(TokenRefusal::Signature));
    }
}

#[tokio::test]
async fn h43_a_key_of_somebody_else_counts_for_nothing() {
    let own = es256("a");
    let server = server(&[&own]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    // Under the name of the issuer's key.
    let forged = es256("a");
    assert_eq!(verify(&verifier, &forged.token(&claims())).await, Err(TokenRefusal::Signature));
    // Under a name of its own.
    assert_eq!(verify(&verifier, &es256("b").token(&claims())).await, Err(TokenRefusal::Key));
    // Under no name, with the key in the token, or where it could be had.
    let brought = json!({
        "alg": "ES256", "jwk": forged.jwk(), "jku": "http://127.0.0.1:1/keys",
        "x5u": "http://127.0.0.1:1/", "x5c": ["AAAA"],
    });
    let token = forged.token_with(&brought, &claims());
    assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Key));
    assert_alice(&verify(&verifier, &own.token(&claims())).await);
}

/// A token with an HMAC, by a secret that everybody knows.
fn hmac_token(header: &Value, secret: &[u8]) -> String {
    let signed = unsigned(header, &claims());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

#[tokio::test]
async fn h43_a_public_key_is_never_a_secret_and_no_signature_is_none() {
    let rsa = key("a", TokenAlgorithm::Rs256);
    let server = server(&[&rsa]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    let jwk = rsa.jwk();
    let modulus = jwk["n"].as_str().unwrap();
    let secrets = [
        jwk.to_string().into_bytes(),
        modulus.as_bytes().to_vec(),
        BASE64URL_NOPAD.decode(modulus.as_bytes()).unwrap(),
        Vec::new(),
    ];
    for secret in secrets {
        for name in ["HS256", "hs256", "RS256", "ES256", "none"] {
            let token = hmac_token(&json!({ "alg": name, "kid": "a" }), &secret);
            let refused = verify(&verifier, &token).await.unwrap_err();
            let expected = match name {
                "RS256" | "ES256" => TokenRefusal::Signature,
                _ => TokenRefusal::Algorithm,
            };
            assert_eq!(refused, expected, "{name}");
        }
    }
    for name in ["none", "None", "NONE", "nOnE", ""] {
        for signature in ["", "AAAA"] {
            let header = json!({ "alg": name, "kid": "a" });
            let token = format!("{}.{signature}", unsigned(&header, &claims()));
            assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Algorithm), "{name}");
        }
    }
}

#[tokio::test]
async fn h43_a_key_is_used_only_as_it_says_and_as_the_settings_say() {
    // One RSA key, which is for RS256.
    let rs256 = key("a", TokenAlgorithm::Rs256);
    let ps256 = key("a", TokenAlgorithm::Ps256);
    let server = server(&[&rs256]);
    let (strict, _) = verifier(vec![issuer(&server)]);
    assert_eq!(verify(&strict, &ps256.token(&claims())).await, Err(TokenRefusal::Signature));
    let algorithms = vec![Algorithm::Ps256];
    let (other, _) = verifier(vec![IssuerSettings { algorithms, ..issuer(&server) }]);
    assert_eq!(verify(&other, &rs256.token(&claims())).await, Err(TokenRefusal::Algorithm));
}

#[tokio::test]
async fn h43_a_token_for_another_audience_or_time_or_of_another_issuer_is_refused() {
    let key = es256("a");
    let server = server(&[&key]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    let with = |name: &str, value: Value| {
        let mut changed = claims();
        changed[name] = value;
        key.token(&changed)
    };
    for (token, refusal) in [
        (with("aud", json!("bank")), TokenRefusal::Audience),
        (with("iss", json!("https://evil.example.com")), TokenRefusal::Issuer),
        (with("iss", json!(null)), TokenRefusal::Issuer),
        (with("exp", json!(NOW - 31)), TokenRefusal::Expired),
        (with("nbf", json!(NOW + 60)), TokenRefusal::NotYetValid),
    ] {
        assert_eq!(verify(&verifier, &token).await, Err(refusal));
    }
    let critical = json!({ "alg": "ES256", "kid": "a", "crit": ["x"], "x": 1 });
    let token = key.token_with(&critical, &claims());
    assert_eq!(verify(&verifier, &token).await, Err(TokenRefusal::Critical));
}

#[tokio::test]
async fn h43_only_one_token_in_the_right_place_counts() {
    let key = es256("a");
    let server = server(&[&key]);
    let (verifier, _) = verifier(vec![issuer(&server)]);
    let token = key.token(&claims());
    assert_alice(&verify_in(&verifier, &headers(&format!("bearer   {token} "))).await);
    for none in ["", "Bearer", "Basic YTpi", &token] {
        let refused = verify_in(&verifier, &headers(none)).await;
        assert_eq!(refused, Err(TokenRefusal::Missing), "{none}");
    }
    for wrong in ["Bearer x", "Bearer a.b.c", "Bearer \u{e9}", &format!("Bearer {token},{token}")] {
        let refused = verify_in(&verifier, &headers(wrong)).await;
        assert_eq!(refused, Err(TokenRefusal::Malformed), "{wrong}");
    }
    for second in [format!("Bearer {token}"), "Basic YTpi".to_owned()] {
        let mut two = headers(&format!("Bearer {token}"));
        two.append(AUTHORIZATION, second.parse().unwrap());
        assert_eq!(verify_in(&verifier, &two).await, Err(TokenRefusal::Ambiguous));
    }
    let long = "a".repeat(MAX_TOKEN_BYTES + 1);
    assert_eq!(verify(&verifier, &long).await, Err(TokenRefusal::TooLong));
    let mut other = headers("Basic YTpi");
    other.insert("x-other-token", token.parse().unwrap());
    assert_eq!(verify_in(&verifier, &other).await, Err(TokenRefusal::Missing));
}

/// An issuer of tokens in a header of its own.
fn in_header(server: &justonce_testbed::KeyServer, issued_by: &str, name: &str) -> IssuerSettings {
    let header = HeaderName::try_from(name).unwrap();
    IssuerSettings { issuer: issued_by.to_owned(), header, ..issuer(server) }
}

#[tokio::test]
async fn h43_two_issuers_do_not_speak_for_each_other() {
    let (own, other): (SigningKey, SigningKey) = (es256("a"), es256("a"));
    let (first, second) = (server(&[&own]), server(&[&other]));
    let evil = "https://evil.example.com";
    let (verifier, _) = verifier(vec![issuer(&first), in_header(&second, evil, "x-other-token")]);
    let mut of_other = claims();
    of_other["iss"] = json!(evil);
    // Each in its own header and with its own key.
    let (of_own, of_partner) = (own.token(&claims()), other.token(&of_other));
    assert_alice(&verify(&verifier, &of_own).await);
    let id_token = |token: &str| {
        let name = HeaderName::from_static("x-other-token");
        http::HeaderMap::from_iter([(name, HeaderValue::from_str(token).unwrap())])
    };
    let found = verify_in(&verifier, &id_token(&of_partner)).await.unwrap();
    assert_eq!((found.issuer(), ISSUER == evil), (evil, false));
    // The key of one does not sign for the other, nor does its header carry the other's tokens.
    let crossed = verify(&verifier, &other.token(&claims())).await;
    assert_eq!(crossed, Err(TokenRefusal::Signature));
    // Not even one that was verified before.
    let elsewhere = verify(&verifier, &of_partner).await;
    assert_eq!(elsewhere, Err(TokenRefusal::Issuer));
    let elsewhere = verify_in(&verifier, &id_token(&of_own)).await;
    assert_eq!(elsewhere, Err(TokenRefusal::Issuer));
    // Two tokens are one too many.
    let mut both = headers(&format!("Bearer {}", own.token(&claims())));
    both.extend(id_token(&other.token(&of_other)));
    assert_eq!(verify_in(&verifier, &both).await, Err(TokenRefusal::Ambiguous));
}
