//! New routes without a restart.

use nix::sys::signal::Signal;

use crate::support::client::{Call, until};
use crate::support::process::Home;
use crate::support::upstream::Upstream;

const OPTIONAL: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'optional'\n";
const REQUIRED: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'required'\n";

/// The status of a payment without a key.
fn without_key(address: std::net::SocketAddr) -> u16 {
    let mut call = Call::connect(address);
    call.write(b"POST /payments HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{}");
    call.answer().status()
}

#[test]
fn a_changed_file_and_sighup_change_the_routes() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let address = upstream.address();
    home.configure(address, OPTIONAL);
    upstream.serve();
    let gateway = home.start();
    assert_eq!(without_key(gateway.address), 201);
    // The file is watched.
    home.configure(address, REQUIRED);
    until("the new route", || without_key(gateway.address), |status| *status == 400);
    // And it is read again on SIGHUP, changed or not.
    gateway.log_line("new routes are in force");
    gateway.signal(Signal::SIGHUP);
    let line = gateway.log_line("new routes are in force");
    assert!(line.contains("SIGHUP"), "{line}");
    assert_eq!(without_key(gateway.address), 400);
}

#[test]
fn a_route_that_gets_another_upstream_is_warned_of() {
    let (home, old, new) = (Home::new(), Upstream::new(), Upstream::new());
    home.configure(old.address(), OPTIONAL);
    let gateway = home.start();
    home.configure(new.address(), OPTIONAL);
    let line = gateway.log_line("another upstream now");
    assert!(line.contains("WARN") && line.contains("POST /payments"), "{line}");
    assert!(line.contains("default"), "{line}");
    // What stays where it was is not worth a word.
    home.configure(new.address(), REQUIRED);
    let lines = gateway.log_up_to("new routes are in force");
    let lines = [lines, gateway.log_up_to("new routes are in force")].concat();
    assert!(!lines.iter().any(|line| line.contains("another upstream now")), "{lines:?}");
}

#[test]
fn a_bad_file_leaves_the_old_routes_in_force_loudly() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let address = upstream.address();
    home.configure(address, REQUIRED);
    upstream.serve();
    let gateway = home.start();
    home.configure(address, "[[route]]\nmatch = 'POST /payments'\nkee = 'optional'\n");
    let line = gateway.log_line("the new configuration is wrong");
    assert!(line.contains("ERROR"), "{line}");
    gateway.log_line("did you mean `key`?");
    assert_eq!(without_key(gateway.address), 400);
    let metrics = Call::get(gateway.admin, "/metrics").text();
    assert!(metrics.contains("justonce_reloads_total{result=\"refused\"} 1"), "{metrics}");
    // And a good one after it counts again.
    home.configure(address, OPTIONAL);
    until("the good route", || without_key(gateway.address), |status| *status == 201);
}

#[test]
fn a_wrong_configuration_does_not_start() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[defaults]\nretenton = '1h'");
    let error = crate::support::process::Gateway::start(home.command()).err().unwrap();
    assert!(error.contains("justonce.toml:6:1"), "{error}");
    assert!(error.contains("did you mean `retention`?"), "{error}");
}

/// Puts a directory in the place of another as Kubernetes does it with a ConfigMap: the files are
/// links through `..data`, which is a link to a directory, and that link is exchanged.
fn swap(mount: &std::path::Path, name: &str, files: &[(&str, &str)]) {
    use std::os::unix::fs::symlink;
    let real = mount.join(name);
    std::fs::create_dir(&real).unwrap();
    for (file, text) in files {
        std::fs::write(real.join(file), text).unwrap();
        let link = mount.join(file);
        if !link.exists() {
            symlink(std::path::Path::new("..data").join(file), link).unwrap();
        }
    }
    symlink(name, mount.join("..data_tmp")).unwrap();
    std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
}

#[test]
fn a_configmap_that_is_swapped_is_noticed() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let base = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = 'http://{}'\n\
         store = 'memory:'\n",
        upstream.address()
    );
    upstream.serve();
    let mount = home.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let file = "justonce.toml";
    swap(&mount, "..first", &[(file, &format!("{base}{OPTIONAL}"))]);
    let mut command = crate::support::process::justonce();
    command.arg("serve").arg("--config").arg(mount.join(file));
    let gateway = crate::support::process::Gateway::start(command).unwrap();
    assert_eq!(without_key(gateway.address), 201);
    swap(&mount, "..second", &[(file, &format!("{base}{REQUIRED}"))]);
    until("the new route", || without_key(gateway.address), |status| *status == 400);
    std::fs::remove_dir_all(mount.join("..first")).unwrap();
    swap(&mount, "..third", &[(file, &format!("{base}{OPTIONAL}"))]);
    until("the old route", || without_key(gateway.address), |status| *status == 201);
}

/// Whether a TLS handshake succeeds with a client that trusts this certificate alone.
pub(crate) fn shows(address: std::net::SocketAddr, certificate: &rcgen::Certificate) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    client.complete_io(&mut stream).is_ok()
}

#[test]
fn a_renewed_certificate_is_served_and_a_broken_one_is_not_silent() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let write = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    };
    let (first, second, third) = (make(), make(), make());
    write(&first);
    let tls = format!("[tls]\ncert = '{}'\nkey = '{}'\n", cert.display(), key.display());
    home.configure(upstream.address(), &tls);
    let gateway = home.start();
    assert!(shows(gateway.address, &first.cert) && !shows(gateway.address, &second.cert));
    // On SIGHUP.
    write(&second);
    gateway.signal(Signal::SIGHUP);
    until("the second", || shows(gateway.address, &second.cert), |shown| *shown);
    // And by itself. First the certificate alone: its key is still the old one.
    std::fs::write(&cert, third.cert.pem()).unwrap();
    let line = gateway.log_line("the old certificate is still served");
    assert!(line.contains("cert.pem") || line.contains("key.pem"), "{line}");
    assert!(shows(gateway.address, &second.cert));
    write(&third);
    until("the third", || shows(gateway.address, &third.cert), |shown| *shown);
}

#[test]
fn changed_tokens_count_and_changed_authorities_of_stores_are_said_to_need_a_restart() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let token = home.path().join("token");
    let authorities = home.path().join("ca.pem");
    std::fs::write(&token, "first-token-of-operators\n").unwrap();
    let pem = || rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    std::fs::write(&authorities, pem()).unwrap();
    let more = format!(
        "admin_token_file = '{}'\n[redis]\nca = '{}'\n",
        token.display(),
        authorities.display()
    );
    home.configure(upstream.address(), &more);
    let gateway = home.start();
    let status = |token: &str| {
        let mut call = Call::connect(gateway.admin);
        let shown = format!("authorization: Bearer {token}");
        call.write(format!("GET /keys HTTP/1.1\r\nhost: t\r\n{shown}\r\n\r\n").as_bytes());
        call.answer().status()
    };
    assert_eq!(status("first-token-of-operators"), 200);
    std::fs::write(&token, "second-token-of-operators\n").unwrap();
    until("the new token", || status("second-token-of-operators"), |status| *status == 200);
    assert_eq!(status("first-token-of-operators"), 401);
    // A token that cannot be read leaves the old one in force.
    std::fs::write(&token, "\n").unwrap();
    gateway.log_line("the old token still counts");
    assert_eq!(status("second-token-of-operators"), 200);
    std::fs::write(&authorities, pem()).unwrap();
    let line = gateway.log_line("only with a restart");
    assert!(line.contains("ca.pem"), "{line}");
}

#[test]
fn a_service_of_kubernetes_with_our_name_is_no_mistake_and_no_secret() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let mut command = home.command();
    command.env("JUSTONCE_PORT", "tcp://10.0.12.7:8080").env("JUSTONCE_SERVICE_HOST", "10.0.12.7");
    let gateway = crate::support::process::Gateway::start(command).unwrap();
    let line = gateway.log_line("service links of Kubernetes");
    assert!(line.contains("JUSTONCE_PORT, JUSTONCE_SERVICE_HOST"), "{line}");
}
