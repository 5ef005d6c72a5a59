//! TLS between the gateway and its upstreams: what is trusted, what is shown, and new files.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::gateway::stage::BODY;
use crate::support::client::{pay, until};
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::read_message;

type Made = CertifiedKey<KeyPair>;

fn make(name: &str) -> Made {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// A service that shows a certificate and answers everything with 201. It may ask for the
/// certificate of a client.
fn serve(own: &Made, client: Option<&Made>) -> (SocketAddr, Arc<Mutex<Arc<ServerConfig>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(Mutex::new(config(own, client)));
    let shared = Arc::clone(&config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&shared.lock().unwrap());
            std::thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = BufReader::new(StreamOwned::new(connection, stream));
                while read_message(&mut stream).is_some() {
                    let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npaid";
                    if stream.get_mut().write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, config)
}

fn config(own: &Made, client: Option<&Made>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(client.cert.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let chain = vec![own.cert.der().clone()];
    Arc::new(builder.with_single_cert(chain, PrivateKeyDer::Pkcs8(key)).unwrap())
}

fn write(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    // In one step: it must not be read half.
    std::fs::write(path.with_extension("new"), text).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    path
}

fn configure(home: &Home, url: &str, tls: &str) {
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nstore = 'memory:'\n\
         [breaker]\nenabled = false\n[upstreams.default]\nurls = '{url}'\n{tls}\n"
    );
    write(home, "justonce.toml", &text);
}

#[test]
fn an_authority_of_its_own_takes_the_place_of_the_systems() {
    let (own, other) = (make("localhost"), make("localhost"));
    let (address, _) = serve(&own, None);
    let home = Home::new();
    let (own, other) =
        (write(&home, "own.pem", &own.cert.pem()), write(&home, "other.pem", &other.cert.pem()));
    let url = format!("https://localhost:{}", address.port());
    // The system trusts it.
    let start = |tls: &str| {
        configure(&home, &url, tls);
        let mut command = home.command();
        command.env("SSL_CERT_FILE", &own).env_remove("SSL_CERT_DIR");
        Gateway::start(command).unwrap()
    };
    let status = |tls: &str| pay(start(tls).address, "k", BODY).status();
    assert_eq!(status(""), 201);
    let ca = |path: &Path| format!("tls.ca = '{}'", path.display());
    assert_eq!(status(&ca(&other)), 502, "only that authority counts");
    assert_eq!(status(&ca(&own)), 201);
    let beside = format!("[upstream_tls]\nca = '{}'", other.display());
    assert_eq!(status(&beside), 201, "beside the system's");
}

#[test]
fn new_files_count_with_a_reload_and_wrong_ones_leave_the_old_in_force() {
    let (server, first, second) = (make("localhost"), make("one"), make("two"));
    let (address, config_of) = serve(&server, Some(&first));
    let home = Home::new();
    let ca = write(&home, "ca.pem", &server.cert.pem());
    let show = |made: &Made| {
        let key = write(&home, "key.pem", &made.signing_key.serialize_pem());
        (write(&home, "cert.pem", &made.cert.pem()), key)
    };
    let (cert, key) = show(&first);
    let tls = format!(
        "tls = {{ ca = '{}', cert = '{}', key = '{}' }}",
        ca.display(),
        cert.display(),
        key.display()
    );
    configure(&home, &format!("https://localhost:{}", address.port()), &tls);
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "a", BODY).text(), "paid");

    // The service asks for another certificate from now on. Nothing was executed without it.
    *config_of.lock().unwrap() = config(&server, Some(&second));
    let mut number = 0;
    let mut status = || {
        number += 1;
        pay(gateway.address, &format!("b{number}"), BODY)
    };
    // The certificate alone: its key is still the old one.
    write(&home, "cert.pem", &second.cert.pem());
    gateway.log_line("the old certificates are still used");
    show(&second);
    gateway.log_line("new certificates count");
    until("the new certificate", &mut status, |answer| answer.status() == 201);

    // Another authority for the service.
    let renewed = make("localhost");
    *config_of.lock().unwrap() = config(&renewed, Some(&second));
    write(&home, "ca.pem", &renewed.cert.pem());
    gateway.log_line("new certificates count");
    until("the new authority", &mut status, |answer| answer.status() == 201);
}

#[test]
fn a_refused_certificate_executes_nothing_and_the_key_is_free() {
    let (server, client) = (make("localhost"), make("gateway"));
    let (address, _) = serve(&server, Some(&client));
    let home = Home::new();
    let ca = write(&home, "ca.pem", &server.cert.pem());
    let url = format!("https://localhost:{}", address.port());
    configure(&home, &url, &format!("tls.ca = '{}'", ca.display()));
    let gateway = home.start();
    let answer = pay(gateway.address, "k", BODY);
    assert_eq!((answer.status(), answer.code().as_str()), (502, "upstream-unreachable"));
    assert_ne!(crate::support::client::state(gateway.address, "k"), "unknown");
}

#[test]
fn files_that_cannot_be_used_are_told_before_the_start() {
    let home = Home::new();
    configure(&home, "https://localhost:1", "tls.ca = 'no-such-ca.pem'");
    let output = justonce().arg("check").arg("--config").arg(home.config()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("`upstreams.default`") && told.contains("no-such-ca.pem"), "{told}");
    let refused = Gateway::start(home.command()).err().unwrap();
    assert!(refused.contains("no-such-ca.pem"), "{refused}");
}
