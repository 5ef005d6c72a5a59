//! TLS to upstreams: who is trusted, what is shown, by which name.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use justonce_http::ResponseEffect;
use justonce_proxy::{
    ClientCertificate, HealthCheck, Protocol, Proxy, ProxyError, ProxySettings, SettingsError,
    UpstreamAddress, UpstreamRoots, UpstreamTls,
};
use rcgen::{CertifiedKey, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tempfile::NamedTempFile;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::parts::{OK, Upstream, proxy_settings, read_head, say};

type Made = CertifiedKey<KeyPair>;

fn make(name: &str) -> Made {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn certificate(made: &Made) -> NamedTempFile {
    file(&made.cert.pem())
}

fn key(made: &Made) -> NamedTempFile {
    file(&made.signing_key.serialize_pem())
}

fn private(made: &Made) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()))
}

/// A server that shows a certificate, and asks for this one if there is one.
struct Secure {
    upstream: Upstream,
    /// The names that clients asked for.
    names: Arc<Mutex<Vec<Option<String>>>>,
    /// The heads of requests that it read.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Secure {
    async fn start(own: &Made, clients: Option<&Made>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let mut roots = RootCertStore::empty();
                roots.add(client.cert.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let config = builder.with_single_cert(vec![own.cert.der().clone()], private(own)).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (names, heads) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (seen, read) = (Arc::clone(&names), Arc::clone(&heads));
        let upstream = Upstream::start(move |stream: TcpStream| {
            let (acceptor, seen, read) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&read));
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let name = stream.get_ref().1.server_name().map(str::to_owned);
                seen.lock().unwrap().push(name);
                while let Some((head, _)) = read_head(&mut stream).await {
                    read.lock().unwrap().push(head);
                    say(&mut stream, OK).await;
                }
            }
        })
        .await;
        Self { upstream, names, heads }
    }

    /// A proxy to it, by this host.
    fn settings(&self, host: &str, roots: UpstreamRoots) -> ProxySettings {
        let address = format!("https://{host}:{}", self.upstream.address.port());
        let mut settings = proxy_settings([UpstreamAddress::parse(&address).unwrap()]);
        settings.tls = UpstreamTls { roots, ..UpstreamTls::default() };
        // What fails is tried again and again here.
        settings.breaker = None;
        settings
    }

    fn heads(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

fn only(path: &Path) -> UpstreamRoots {
    UpstreamRoots::Only(path.to_owned())
}

/// The status of a payment, and what failed.
async fn pay(proxy: &Proxy) -> (StatusCode, Option<ProxyError>) {
    let request = Request::post("/").header("host", "shop").body(Full::<Bytes>::from("pay"));
    let response = proxy.send(request.unwrap()).await;
    let error = response.extensions().get().copied();
    assert_eq!(response.extensions().get(), error.map(ProxyError::effect).as_ref());
    let status = response.status();
    response.into_body().collect().await.unwrap();
    (status, error)
}

const PAID: (StatusCode, Option<ProxyError>) = (StatusCode::OK, None);
const NOT_REACHED: (StatusCode, Option<ProxyError>) =
    (StatusCode::BAD_GATEWAY, Some(ProxyError::NotReached));

#[tokio::test]
async fn only_the_authorities_of_the_file_are_trusted() {
    let (own, stranger) = (make("localhost"), make("localhost"));
    let server = Secure::start(&own, None).await;
    let (right, wrong) = (certificate(&own), certificate(&stranger));
    let proxy = |file: &NamedTempFile| Proxy::new(server.settings("localhost", only(file.path())));
    assert_eq!(pay(&proxy(&wrong).unwrap()).await, NOT_REACHED);
    assert_eq!(pay(&proxy(&right).unwrap()).await, PAID);
    assert_eq!(server.heads(), 1);
    assert!(matches!(proxy(&key(&own)), Err(SettingsError::Authorities(..))));
}

#[tokio::test]
async fn the_certificate_may_be_for_a_name_that_is_not_in_the_address() {
    let own = make("payments.internal");
    let server = Secure::start(&own, None).await;
    let authority = certificate(&own);
    let mut settings = server.settings("127.0.0.1", only(authority.path()));
    assert_eq!(pay(&Proxy::new(settings.clone()).unwrap()).await, NOT_REACHED);
    settings.tls.server_name = Some("payments.internal".to_owned());
    settings.health = Some(HealthCheck::new("/healthz".parse().unwrap()));
    let proxy = Proxy::new(settings.clone()).unwrap();
    assert_eq!(pay(&proxy).await, PAID);
    assert_eq!(proxy.check_health().await[0].failure, None);
    let names = server.names.lock().unwrap().clone();
    assert_eq!(names, vec![Some("payments.internal".to_owned()); 2]);
    settings.tls.server_name = Some("no name".to_owned());
    assert!(matches!(Proxy::new(settings), Err(SettingsError::ServerName(_))));
}

/// In TLS 1.3 the client's side of the handshake ends first: the request is on its way when the
/// server refuses the certificate, and still it cannot have read any of it.
#[tokio::test]
async fn a_server_that_wants_a_certificate_executes_nothing_without_it() {
    let (own, client, stranger) = (make("localhost"), make("gateway"), make("stranger"));
    let server = Secure::start(&own, Some(&client)).await;
    let authority = certificate(&own);
    let plain = server.settings("localhost", only(authority.path()));
    let showing = |made: &Made| {
        let (chain, key) = (certificate(made), key(made));
        let mut settings = plain.clone();
        settings.tls.certificate =
            Some(ClientCertificate { chain: chain.path().to_owned(), key: key.path().to_owned() });
        Proxy::new(settings).unwrap()
    };
    let (without, right, wrong) =
        (Proxy::new(plain.clone()).unwrap(), showing(&client), showing(&stranger));
    for _ in 0..20 {
        assert_eq!(pay(&without).await, NOT_REACHED);
        assert_eq!(pay(&wrong).await, NOT_REACHED);
    }
    assert_eq!(NOT_REACHED.1.map(ProxyError::effect), Some(ResponseEffect::NotExecuted));
    assert_eq!(server.heads(), 0);
    assert_eq!(pay(&right).await, PAID);
    assert_eq!(server.heads(), 1);

    let mut settings = plain;
    let (chain, other) = (certificate(&client), key(&stranger));
    settings.tls.certificate =
        Some(ClientCertificate { chain: chain.path().into(), key: other.path().into() });
    let refused = Proxy::new(settings).unwrap_err();
    assert!(matches!(&refused, SettingsError::Identity(path, _) if path == other.path()));
}

#[tokio::test]
async fn http2_is_agreed_upon_or_nothing_is_sent() {
    let own = make("localhost");
    let authority = certificate(&own);
    let plain = Secure::start(&own, None).await;
    let mut settings = plain.settings("localhost", only(authority.path()));
    settings.protocol = Protocol::Http2;
    assert_eq!(pay(&Proxy::new(settings.clone()).unwrap()).await, NOT_REACHED);
    assert_eq!(plain.heads(), 0);

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_single_cert(vec![own.cert.der().clone()], private(&own)).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let upstream = Upstream::start(move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                assert_eq!(request.uri().scheme_str(), Some("https"));
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            }
        }
    })
    .await;
    let address = format!("https://localhost:{}", upstream.address.port());
    settings.upstreams = vec![UpstreamAddress::parse(&address).unwrap()];
    let proxy = Proxy::new(settings).unwrap();
    assert_eq!(pay(&proxy).await, PAID);
    assert_eq!(pay(&proxy).await, PAID);
    assert_eq!(upstream.connections(), 1);
}
