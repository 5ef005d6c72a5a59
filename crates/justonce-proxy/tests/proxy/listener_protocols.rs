//! HTTP/1.1 and HTTP/2, in clear and through TLS, and how they come to an end.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use justonce_proxy::{ListenerSettings, ServerTls, ServerTlsFiles, TrustedProxies};
use justonce_proxy::{Proxy, UpstreamAddress, UpstreamRoots};
use rustls::pki_types::ServerName;
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::parts::{
    Gateway, OK, Upstream, listener, listener_settings, proxy_settings, read_answer, read_head,
    read_rest, say, settings,
};

type Http2 = http2::SendRequest<Full<Bytes>>;

async fn http2<T>(stream: T) -> Http2
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = shaken.unwrap();
    tokio::spawn(connection);
    sender
}

fn post(uri: &str, body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri(uri);
    request.body(Full::from(body)).unwrap()
}

/// An upstream that sends back the head and the body it got, if that has a length.
async fn mirror() -> Upstream {
    Upstream::start(|mut stream| async move {
        while let Some((head, mut body)) = read_head(&mut stream).await {
            while body.len() < crate::parts::content_length(&head) {
                tokio::io::AsyncReadExt::read_buf(&mut stream, &mut body).await.unwrap();
            }
            let back = format!("{head}{}", String::from_utf8(body).unwrap());
            let length = back.len();
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{back}"))
                .await;
        }
    })
    .await
}

#[tokio::test]
async fn a_proxy_may_hand_on_tls_and_say_whose_it_is() {
    let upstream = mirror().await;
    let identity = identity();
    let proxies = TrustedProxies {
        ranges: vec!["127.0.0.0/8".parse().unwrap()],
        proxy_protocol: true,
        ..TrustedProxies::default()
    };
    let listener = listener(listener_settings()).with_tls(identity.server()).with_proxies(proxies);
    let gateway = Gateway::serve(settings(upstream.address), listener, Duration::from_secs(5));
    let mut stream = gateway.connect().await;
    say(&mut stream, "PROXY TCP6 2001:db8::9 ::1 4660 443\r\n").await;
    let tls = identity.client(&["h2"]).connect(localhost(), stream);
    let mut sender = http2(tls.await.unwrap()).await;
    let response = sender.send_request(post("https://shop/", "two")).await.unwrap();
    let seen = response.into_body().collect().await.unwrap().to_bytes();
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    assert!(seen.contains("x-forwarded-for: 2001:db8::9\r\n"), "{seen}");
    assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");

    // Without the header there is no handshake.
    let stream = gateway.connect().await;
    assert!(identity.client(&["h2"]).connect(localhost(), stream).await.is_err());
}

#[tokio::test]
async fn http2_in_clear_becomes_http1_with_a_host() {
    let upstream = mirror().await;
    let gateway = Gateway::to(upstream.address);
    let sender = http2(gateway.connect().await).await;
    let all: Vec<_> = (0..20)
        .map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let response = sender.send_request(post("http://shop/pay?x=1", "money")).await;
                let response = response.unwrap();
                assert_eq!(response.version(), Version::HTTP_2);
                assert_eq!(response.status(), StatusCode::OK);
                response.into_body().collect().await.unwrap().to_bytes()
            })
        })
        .collect();
    for one in all {
        let seen = String::from_utf8(one.await.unwrap().to_vec()).unwrap();
        assert!(seen.starts_with("post /pay?x=1 http/1.1\r\n"), "{seen}");
        assert!(seen.contains("\r\nhost: shop\r\n"), "{seen}");
        assert!(seen.contains("\r\ncontent-length: 5\r\n"), "{seen}");
        assert!(seen.ends_with("\r\n\r\nmoney"), "{seen}");
    }
}

struct Identity {
    certificate: NamedTempFile,
    key: NamedTempFile,
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = file(&made.cert.pem());
    let key = file(&made.signing_key.serialize_pem());
    Identity { certificate, key }
}

impl Identity {
    fn server(&self) -> ServerTls {
        let files = ServerTlsFiles::new(self.certificate.path(), self.key.path());
        ServerTls::from_files(&files).unwrap()
    }

    fn client(&self, protocols: &[&str]) -> TlsConnector {
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        let pem = rustls::pki_types::CertificateDer::from_pem_file(self.certificate.path());
        roots.add(pem.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

#[tokio::test]
async fn tls_offers_both_protocols() {
    let upstream = mirror().await;
    let identity = identity();
    let listener = listener(listener_settings()).with_tls(identity.server());
    let gateway = Gateway::serve(settings(upstream.address), listener, Duration::from_secs(5));

    let tls = identity.client(&["h2"]).connect(localhost(), gateway.connect().await);
    let mut sender = http2(tls.await.unwrap()).await;
    let response = sender.send_request(post("https://shop/", "two")).await.unwrap();
    let seen = response.into_body().collect().await.unwrap().to_bytes();
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");

    for protocols in [&["http/1.1"][..], &[]] {
        let tls = identity.client(protocols).connect(localhost(), gateway.connect().await);
        let io = TokioIo::new(tls.await.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut request = post("/", "one");
        request.headers_mut().insert("host", "shop".parse().unwrap());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let seen = response.into_body().collect().await.unwrap().to_bytes();
        assert!(seen.ends_with(b"one"));
    }

    // In clear, or never finishing the handshake: closed.
    let answer = crate::parts::shout(gateway.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
}

#[tokio::test]
async fn an_endless_handshake_is_cut_off() {
    let upstream = mirror().await;
    let handshake_timeout = Duration::from_millis(50);
    let limits = ListenerSettings { handshake_timeout, ..listener_settings() };
    let listener = listener(limits).with_tls(identity().server());
    let gateway = Gateway::serve(settings(upstream.address), listener, Duration::from_secs(5));
    assert_eq!(read_rest(&mut gateway.connect().await).await, "");
}

#[tokio::test]
async fn upstreams_are_reached_through_tls() {
    let identity = identity();
    let acceptor = {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let chain = vec![CertificateDer::from_pem_file(identity.certificate.path()).unwrap()];
        let key = PrivateKeyDer::from_pem_file(identity.key.path()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    };
    let upstream = Upstream::start(move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while read_head(&mut stream).await.is_some() {
                say(&mut stream, OK).await;
            }
        }
    })
    .await;
    let address = format!("https://localhost:{}", upstream.address.port());
    let mut settings = proxy_settings([UpstreamAddress::parse(&address).unwrap()]);
    let stranger = Proxy::new(settings.clone()).unwrap();
    settings.tls.roots = UpstreamRoots::SystemAnd(identity.certificate.path().to_owned());
    let trusting = Proxy::new(settings).unwrap();
    for _ in 0..3 {
        let response = trusting.send(post("/", "")).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(upstream.connections(), 1);
    assert_eq!(stranger.send(post("/", "")).await.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn what_is_under_way_finishes_before_the_end() {
    let (upstream, mut reached) = Upstream::told().await;
    let mut gateway = Gateway::to(upstream.address);
    let mut idle = gateway.connect().await;
    let mut unused = http2(gateway.connect().await).await;
    let mut client = gateway.connect().await;
    say(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut held = reached.recv().await.unwrap();
    let mut second = http2(gateway.connect().await).await;
    let streamed = tokio::spawn(second.send_request(post("http://a/", "")));
    let mut streaming = reached.recv().await.unwrap();

    gateway.stop();
    // Who has asked nothing is let go after a moment, and nobody new comes in.
    assert_eq!(read_rest(&mut idle).await, "");
    while unused.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(TcpStream::connect(gateway.address).await.is_err());

    say(&mut held, OK).await;
    let (head, body) = read_answer(&mut client).await;
    assert_eq!(body, "ok");
    assert!(head.contains("connection: close\r\n"), "{head}");
    assert_eq!(read_rest(&mut client).await, "");
    say(&mut streaming, OK).await;
    let response = streamed.await.unwrap().unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    drop(second);
    let served = gateway.ended().await;
    assert_eq!((served.accepted, served.dropped), (4, 0));
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_dropped() {
    let (upstream, mut reached) = Upstream::told().await;
    let listener = listener(listener_settings());
    let grace = Duration::from_millis(50);
    let mut gateway = Gateway::serve(settings(upstream.address), listener, grace);
    let mut client = gateway.connect().await;
    say(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let _held = reached.recv().await.unwrap();
    gateway.stop();
    let served = gateway.ended().await;
    assert_eq!((served.accepted, served.dropped), (1, 1));
    assert_eq!(read_rest(&mut client).await, "");
}
