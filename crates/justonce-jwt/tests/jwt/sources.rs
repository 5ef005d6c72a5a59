//! Keys from files, and over HTTPS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justonce_http::TokenRefusal;
use justonce_jwt::{IssuerSettings, KeySource};
use justonce_testbed::{SigningKey, jwks};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{ISSUER, assert_alice, assert_unavailable, claims, es256, verifier, verify};

fn from(keys: KeySource) -> IssuerSettings {
    IssuerSettings {
        unknown_key_pause: Duration::ZERO,
        ..IssuerSettings::new("login", ISSUER, vec!["shop".to_owned()], keys)
    }
}

/// In one step: it must not be read half.
fn write(path: &Path, text: &str) {
    std::fs::write(path.with_extension("new"), text).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn h43_a_file_of_keys_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let (old, new) = (es256("old"), es256("new"));
    write(&path, &jwks(&[&old]));
    let (verifier, _) = verifier(vec![from(KeySource::File(path.clone()))]);
    let token = old.token(&claims());
    assert_alice(&verify(&verifier, &token).await);
    // A file that cannot be used changes nothing.
    for broken in ["", "{", "{\"keys\":[]}"] {
        write(&path, broken);
        assert_unavailable(&verify(&verifier, &new.token(&claims())).await);
        assert_alice(&verify(&verifier, &token).await);
    }
    std::fs::remove_file(&path).unwrap();
    assert_alice(&verify(&verifier, &token).await);
    // Also without a token that asks for the new key.
    write(&path, &jwks(&[&new]));
    let mut verified = verify(&verifier, &token).await;
    for _ in 0..30 {
        if verified.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // tidy: allow-sleep: time is paused
        verified = verify(&verifier, &token).await;
    }
    assert_eq!(verified, Err(TokenRefusal::Key));
    assert_alice(&verify(&verifier, &new.token(&claims())).await);
}

#[tokio::test]
async fn h43_what_is_no_file_has_no_keys() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("missing"), "/dev/zero".into()]
    {
        let (verifier, _) = verifier(vec![from(KeySource::File(path))]);
        assert_unavailable(&verify(&verifier, &es256("a").token(&claims())).await);
    }
}

/// A server of keys behind a certificate. Returns its address and its certificate as a file.
fn secure(key: &SigningKey, directory: &Path) -> (String, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = directory.join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(private))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let document = jwks(&[key]);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut head = [0; 4096];
            // A client that does not trust the certificate goes away.
            if stream.read(&mut head).is_ok_and(|read| read > 0) {
                let length = document.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{document}");
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (format!("https://localhost:{port}/keys"), ca)
}

#[tokio::test]
async fn h43_keys_come_over_https_by_an_authority_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let key = es256("a");
    let (url, ca) = secure(&key, directory.path());
    let token = key.token(&claims());
    let (trusting, _) = verifier(vec![from(KeySource::url(&url, Some(ca.clone())).unwrap())]);
    assert_alice(&verify(&trusting, &token).await);
    // The system does not know it.
    let (system, _) = verifier(vec![from(KeySource::url(&url, None).unwrap())]);
    assert_unavailable(&verify(&system, &token).await);
    // A name that is not in the certificate.
    let other = url.replace("localhost", "127.0.0.1");
    let (named, _) = verifier(vec![from(KeySource::url(&other, Some(ca)).unwrap())]);
    assert_unavailable(&verify(&named, &token).await);
    let missing = Some(directory.path().join("no-such-ca.pem"));
    let (without, _) = verifier(vec![from(KeySource::url(&url, missing).unwrap())]);
    assert_unavailable(&verify(&without, &token).await);
}
