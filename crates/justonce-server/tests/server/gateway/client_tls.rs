//! TLS between clients and the gateway: new certificates while connections are open, and
//! certificates of clients as callers (h42).

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::gateway::contract::service::{Service, counted};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::process::{Gateway, Home, LIMIT};
use crate::support::upstream::{Message, read_message};

/// An authority and what it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
struct Signed {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn signs(
        &self,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        years: std::ops::Range<i32>,
    ) -> Signed {
        self.sign(&Self::params(name, purpose, years))
    }

    fn params(
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        years: std::ops::Range<i32>,
    ) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        params
    }

    fn sign(&self, params: &CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: made.der().clone(), pem: made.pem(), key }
    }

    fn server(&self) -> Signed {
        self.signs("gateway", ExtendedKeyUsagePurpose::ServerAuth, 2020..4000)
    }

    fn client(&self, name: &str) -> Signed {
        self.signs(name, ExtendedKeyUsagePurpose::ClientAuth, 2020..4000)
    }

    /// With a serial number that is longer than it should be.
    fn client_with_serial(&self, name: &str, bytes: usize) -> Signed {
        let mut params = Self::params(name, ExtendedKeyUsagePurpose::ClientAuth, 2020..4000);
        params.serial_number = Some(vec![7; bytes].into());
        self.sign(&params)
    }
}

/// A gateway behind TLS, and a service that counts.
struct Secure {
    home: Home,
    gateway: Gateway,
    service: Service,
    authority: Authority,
}

fn write(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    // In one step: it must not be read half.
    std::fs::write(path.with_extension("new"), text).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    path
}

fn install(home: &Home, signed: &Signed) {
    write(home, "key.pem", &signed.key.serialize_pem());
    write(home, "cert.pem", &signed.pem);
}

impl Secure {
    fn start(tls: &str, more: &str) -> Self {
        let (home, authority) = (Home::new(), Authority::new("servers"));
        let service = Service::answering(|number, _| counted(number));
        install(&home, &authority.server());
        Self::configure(&home, service.address(), tls, more);
        let gateway = home.start();
        Self { home, gateway, service, authority }
    }

    fn configure(home: &Home, service: SocketAddr, tls: &str, more: &str) {
        let at = |name: &str| home.path().join(name).display().to_string();
        let (cert, key) = (at("cert.pem"), at("key.pem"));
        let tls = tls.replace("CA", &at("clients.pem"));
        home.configure(service, &format!("[tls]\ncert = '{cert}'\nkey = '{key}'\n{tls}\n{more}\n"));
    }

    /// With the certificates of an authority for clients.
    fn asking(clients: &Authority, tls: &str, more: &str) -> Self {
        let (home, authority) = (Home::new(), Authority::new("servers"));
        let service = Service::answering(|number, _| counted(number));
        install(&home, &authority.server());
        write(&home, "clients.pem", &clients.0.pem());
        Self::configure(&home, service.address(), tls, more);
        let gateway = home.start();
        Self { home, gateway, service, authority }
    }

    /// A connection, with a certificate or without; nothing if there is none.
    fn connect(&self, shown: Option<&Signed>) -> Connection {
        self.connect_trusting(&self.authority, shown)
    }

    fn connect_trusting(&self, authority: &Authority, shown: Option<&Signed>) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(authority.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let key = PrivatePkcs8KeyDer::from(shown.key.serialize_der());
                let chain = vec![shown.certificate.clone()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::Pkcs8(key)).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(self.gateway.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Connection(BufReader::new(StreamOwned::new(connection, stream)))
    }

    /// A payment over a connection of its own.
    fn pay(&self, shown: Option<&Signed>, headers: &str) -> Option<Message> {
        self.connect(shown).pay("abc", headers)
    }

    fn metrics(&self) -> String {
        Call::get(self.gateway.admin, "/metrics").text()
    }

    fn handshakes(&self, result: &str) -> u32 {
        let start = format!("justonce_tls_handshakes_total{{result=\"{result}\"}} ");
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}: {metrics}")).parse().unwrap()
    }
}

struct Connection(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Connection {
    /// A payment; nothing if the gateway has closed the connection.
    fn pay(&mut self, key: &str, headers: &str) -> Option<Message> {
        let request = format!(
            "POST /payments HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\n{headers}\
             content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        read_message(&mut self.0)
    }

    /// The certificate that the gateway has shown.
    fn shown(&self) -> CertificateDer<'static> {
        self.0.get_ref().conn.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

#[track_caller]
fn assert_paid(answer: &Option<Message>, number: usize, is_replay: bool) {
    let answer = answer.as_ref().expect("an answer");
    let got = (answer.text(), answer.is_replay());
    assert_eq!(got, (format!("payment {number}"), is_replay), "{answer:?}");
}

#[test]
fn a_new_certificate_counts_for_new_connections_and_open_ones_go_on() {
    let secure = Secure::start("", "");
    let mut open = secure.connect(None);
    assert_paid(&open.pay("a", ""), 1, false);
    let first = open.shown();
    // A broken one changes nothing.
    write(
        &secure.home,
        "cert.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    secure.gateway.log_line("the old certificate is still served");
    let mut second = secure.connect(None);
    assert_paid(&second.pay("a", ""), 1, true);
    assert_eq!(second.shown(), first);
    let refused = "justonce_certificate_reloads_total{result=\"refused\"}";
    let metrics = secure.metrics();
    assert!(!metrics.contains(&format!("{refused} 0")), "{metrics}");
    // A renewed one.
    let renewed = secure.authority.server();
    install(&secure.home, &renewed);
    secure.gateway.log_line("the new certificate is served");
    let mut third = secure.connect(None);
    assert_paid(&third.pay("b", ""), 2, false);
    assert_eq!(third.shown(), renewed.certificate);
    // The open ones did not notice.
    for open in [&mut open, &mut second] {
        assert_paid(&open.pay("b", ""), 2, true);
        assert_eq!(open.shown(), first);
    }
    assert!(secure.metrics().contains("justonce_certificate_reloads_total{result=\"changed\"} 1"));
    assert_eq!(secure.handshakes("done"), 3);
}

#[test]
fn h42_a_certificate_is_the_caller_where_there_is_no_other_credential() {
    let clients = Authority::new("clients");
    let secure = Secure::asking(&clients, "client_ca = 'CA'", "");
    let (alice, renewed, mallory) =
        (clients.client("alice"), clients.client("alice"), clients.client("mallory"));
    assert_paid(&secure.pay(Some(&alice), ""), 1, false);
    assert_paid(&secure.pay(Some(&mallory), ""), 2, false);
    assert_paid(&secure.pay(Some(&renewed), "cookie: seen=1\r\n"), 1, true);
    // Without a certificate, a header is no certificate.
    for header in ["x-client-cert: alice\r\n", "x-forwarded-client-cert: Subject=\"CN=alice\"\r\n"]
    {
        let answer = secure.pay(None, &format!("{header}cookie: s=1\r\n")).unwrap();
        assert_eq!(answer.text(), "payment 3");
    }
    // Other credentials come first.
    assert_paid(&secure.pay(Some(&alice), "authorization: Bearer x\r\n"), 4, false);
    assert_paid(&secure.pay(Some(&mallory), "authorization: Bearer x\r\n"), 4, true);
    // Whoever speaks for others is not the caller: only their cookies can tell.
    for forwarded in ["x-forwarded-for: 10.1.1.1\r\n", "via: 1.1 x\r\n", "forwarded: for=_a\r\n"] {
        let answer = secure.pay(Some(&alice), forwarded).unwrap();
        assert_ne!(answer.text(), "payment 1", "{answer:?}");
    }
}

#[test]
fn h42_curl_is_known_by_its_certificate_over_both_versions_of_http() {
    let clients = Authority::new("clients");
    let secure =
        Secure::asking(&clients, "client_ca = 'CA'", "[defaults]\nscope = ['certificate']");
    let ca = write(&secure.home, "servers.pem", &secure.authority.0.pem());
    let url = format!("https://localhost:{}/payments", secure.gateway.address.port());
    let curl = |name: &str, version: &str| {
        let client = clients.client(name);
        let certificate = write(&secure.home, "client.pem", &client.pem);
        let key = write(&secure.home, "client-key.pem", &client.key.serialize_pem());
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--max-time",
            "20",
            version,
            "--cacert",
        ])
        .arg(&ca);
        curl.arg("--cert").arg(certificate).arg("--key").arg(key);
        curl.args(["--write-out", " over %{http_version}", "--data", BODY]);
        curl.args(["--header", "Idempotency-Key: abc", &url]);
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(curl("alice", "--http2"), "payment 1 over 2");
    assert_eq!(curl("alice", "--http1.1"), "payment 1 over 1.1");
    assert_eq!(curl("mallory", "--http2"), "payment 2 over 2");
    assert_eq!(secure.service.calls(), 2);
}

#[test]
fn h42_certificates_of_others_cannot_connect() {
    let clients = Authority::new("clients");
    let secure = Secure::asking(
        &clients,
        "client_ca = 'CA'\nclient_cert = 'required'",
        "[defaults]\nscope = ['certificate']",
    );
    assert_paid(&secure.pay(Some(&clients.client("alice")), "authorization: a\r\n"), 1, false);
    assert_paid(&secure.pay(Some(&clients.client("alice")), "authorization: b\r\n"), 1, true);
    assert_paid(&secure.pay(Some(&clients.client("mallory")), ""), 2, false);
    let expired = clients.signs("alice", ExtendedKeyUsagePurpose::ClientAuth, 2020..2021);
    // The same name, by another authority and by another one of the same name.
    let others = [Authority::new("others"), Authority::new("clients")];
    assert!(secure.pay(None, "").is_none());
    assert!(secure.pay(Some(&expired), "").is_none());
    for other in &others {
        assert!(secure.pay(Some(&other.client("alice")), "").is_none());
    }
    // A certificate for servers is none for clients.
    assert!(secure.pay(Some(&clients.server()), "").is_none());
    assert_eq!(secure.service.calls(), 2);
    assert_eq!(secure.handshakes("no_certificate"), 1);
    assert_eq!(secure.handshakes("expired_certificate"), 1);
    assert_eq!(secure.handshakes("untrusted_certificate"), 3);
    assert_eq!(secure.handshakes("done"), 3);
}

/// RFC 5280 allows 20 bytes, and says that some have more.
#[test]
fn h42_a_serial_number_that_is_too_long_makes_two_clients_no_one_caller() {
    let clients = Authority::new("clients");
    let secure = Secure::asking(
        &clients,
        "client_ca = 'CA'\nclient_cert = 'required'",
        "[defaults]\nscope = ['certificate']",
    );
    let client = |name: &str| clients.client_with_serial(name, 32);
    assert_paid(&secure.pay(Some(&client("alice")), ""), 1, false);
    assert_paid(&secure.pay(Some(&client("mallory")), ""), 2, false);
    assert_paid(&secure.pay(Some(&clients.client("alice")), "cookie: seen=1\r\n"), 1, true);
}

#[test]
fn h42_another_authority_for_clients_counts_with_a_reload() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let secure = Secure::asking(&old, "client_ca = 'CA'\nclient_cert = 'required'", "");
    let (of_old, of_new) = (old.client("alice"), new.client("alice"));
    let mut open = secure.connect(Some(&of_old));
    assert_paid(&open.pay("abc", ""), 1, false);
    assert!(secure.pay(Some(&of_new), "").is_none());
    write(&secure.home, "clients.pem", &new.0.pem());
    secure.gateway.log_line("the new certificate is served");
    assert_paid(&secure.pay(Some(&of_new), ""), 2, false);
    assert!(secure.pay(Some(&of_old), "").is_none());
    assert_paid(&open.pay("abc", ""), 1, true);
    // A setting of TLS alone counts, too.
    Secure::configure(&secure.home, secure.service.address(), "client_ca = 'CA'", "");
    let without = || secure.pay(None, "cookie: s=1\r\n").map(|answer| answer.status());
    assert_eq!(until("a reload", without, Option::is_some), Some(201));
}

#[test]
fn h42_the_certificate_of_a_trusted_proxy_is_not_its_clients() {
    let clients = Authority::new("clients");
    let secure = Secure::asking(
        &clients,
        "client_ca = 'CA'",
        "[proxies]\ntrusted = '127.0.0.1'\n[defaults]\nscope = ['certificate']",
    );
    let proxy = clients.client("proxy");
    let of = |client: &str| format!("x-forwarded-for: {client}\r\ncookie: s={client}\r\n");
    assert_paid(&secure.pay(Some(&proxy), &of("10.1.1.1")), 1, false);
    let other = secure.pay(Some(&proxy), &of("10.2.2.2")).unwrap();
    assert_eq!((other.status(), other.code().as_str()), (409, "caller-differs"));
    // Also where it does not say that it speaks for somebody.
    let silent = secure.pay(Some(&proxy), "cookie: s=10.3.3.3\r\n").unwrap();
    assert_eq!((silent.status(), silent.code().as_str()), (409, "caller-differs"));
}

#[test]
fn files_for_clients_that_cannot_be_used_are_told_before_the_start() {
    let home = Home::new();
    install(&home, &Authority::new("servers").server());
    let service = Service::patient();
    Secure::configure(&home, service.address(), "client_ca = 'CA'", "");
    let refused = Gateway::start(home.command()).err().unwrap();
    assert!(refused.contains("clients.pem"), "{refused}");
    write(&home, "clients.pem", "no certificate");
    let mut check = crate::support::process::justonce();
    let output = check.arg("check").arg("--config").arg(home.config()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("there is no certificate in it"), "{told}");
}
