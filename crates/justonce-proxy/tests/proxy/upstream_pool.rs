//! Connections that the upstream closes while nobody uses them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use justonce_http::ResponseEffect;
use justonce_proxy::{Proxy, ProxyBody, ProxyError, UpstreamAddress, UpstreamRoots};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::parts::{OK, Upstream, proxy, proxy_settings, read_head, say, settings, settle};

/// Far below the response timeout of 30 s: whoever waits for that is stuck.
const AT_ONCE: Duration = Duration::from_secs(5);

fn post() -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("/").header("host", "shop");
    request.body(Full::from("pay")).unwrap()
}

async fn text(response: Response<ProxyBody>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

async fn answered(proxy: &Proxy) {
    let response = timeout(AT_ONCE, proxy.send(post())).await.expect("it hangs");
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "{:?}",
        response.extensions().get::<ProxyError>()
    );
    assert_eq!(text(response).await, "ok");
}

/// An upstream in a thread of its own: answers one request on each connection, and closes it when
/// told. What it closed is known to the kernel, and the runtime of the test has not heard of it.
struct OnCommand {
    address: SocketAddr,
    close: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
}

impl OnCommand {
    fn start(at_once: usize, last: fn(&mut TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (close, told) = mpsc::channel();
        let (done, closed) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                let mut open = Vec::new();
                while open.len() < at_once {
                    let (mut stream, _) = listener.accept().unwrap();
                    serve_one(&mut stream);
                    open.push(stream);
                }
                if told.recv().is_err() {
                    return;
                }
                for mut stream in open {
                    last(&mut stream);
                }
                if done.send(()).is_err() {
                    return;
                }
            }
        });
        Self { address, close, closed }
    }

    fn close_all(&self) {
        self.close.send(()).unwrap();
        self.closed.recv().unwrap();
    }
}

fn serve_one(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    while !bytes.ends_with(b"\r\n\r\npay") {
        let count = stream.read(&mut some).unwrap();
        assert_ne!(count, 0);
        bytes.extend_from_slice(&some[..count]);
    }
    stream.write_all(OK.as_bytes()).unwrap();
}

#[tokio::test]
async fn h40_a_connection_closed_while_idle_costs_nothing() {
    let upstream = OnCommand::start(1, |_| {});
    let proxy = proxy(upstream.address);
    for _ in 0..10 {
        answered(&proxy).await;
        upstream.close_all();
        // The runtime has heard of it.
        settle().await;
    }
}

#[tokio::test]
async fn h40_a_close_that_only_the_kernel_knows_of_is_noticed_before_anything_is_written() {
    let upstream = OnCommand::start(1, |_| {});
    let proxy = proxy(upstream.address);
    for _ in 0..10 {
        answered(&proxy).await;
        // This blocks the only thread of the runtime: it hears of nothing.
        upstream.close_all();
    }
}

#[tokio::test]
async fn h40_a_reset_or_a_late_word_of_the_server_is_noticed_too() {
    let late = |stream: &mut TcpStream| {
        stream.write_all(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n").unwrap();
    };
    let reset = |stream: &mut TcpStream| {
        socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
    };
    for last in [late as fn(&mut TcpStream), reset] {
        let upstream = OnCommand::start(1, last);
        let proxy = proxy(upstream.address);
        for _ in 0..5 {
            answered(&proxy).await;
            upstream.close_all();
        }
    }
}

#[tokio::test]
async fn h40_twenty_connections_closed_by_a_restart_cost_nothing() {
    let upstream = OnCommand::start(20, |_| {});
    let proxy = proxy(upstream.address);
    for _ in 0..2 {
        let all: Vec<_> = (0..20)
            .map(|_| {
                let proxy = proxy.clone();
                tokio::spawn(async move { timeout(AT_ONCE, proxy.send(post())).await.unwrap() })
            })
            .collect();
        for one in all {
            let response = one.await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(text(response).await, "ok");
        }
        upstream.close_all();
        settle().await;
    }
}

#[tokio::test]
async fn h40_a_request_that_was_read_stays_unknown() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, OK).await;
        read_head(&mut stream).await;
    })
    .await;
    let proxy = proxy(upstream.address);
    answered(&proxy).await;
    let response = timeout(AT_ONCE, proxy.send(post())).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&ProxyError::Failed));
    assert_eq!(response.extensions().get(), Some(&ResponseEffect::Unknown));
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn h40_the_idle_time_is_a_setting_and_what_the_upstream_announces_counts() {
    let brief = Upstream::start(|mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            say(&mut stream, "HTTP/1.1 200 OK\r\nkeep-alive: timeout=0, max=9\r\n").await;
            say(&mut stream, "content-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let told = proxy(brief.address);
    let fine = Upstream::fine().await;
    let mut never = settings(fine.address);
    never.timeouts.idle = Duration::ZERO;
    let never = Proxy::new(never).unwrap();
    for (upstream, proxy) in [(brief, told), (fine, never)] {
        answered(&proxy).await;
        answered(&proxy).await;
        assert_eq!(upstream.connections(), 2);
    }
}

#[tokio::test]
async fn h40_a_tls_session_that_ended_while_idle_costs_nothing() {
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::AsyncWriteExt;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let (close, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let notes = (Arc::clone(&close), Arc::clone(&closed));
    let upstream = Upstream::start(move |stream| {
        let (acceptor, notes) = (acceptor.clone(), notes.clone());
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            read_head(&mut stream).await;
            say(&mut stream, OK).await;
            notes.0.notified().await;
            stream.shutdown().await.unwrap();
            notes.1.notify_one();
        }
    })
    .await;
    let mut authority = tempfile::NamedTempFile::new().unwrap();
    authority.write_all(made.cert.pem().as_bytes()).unwrap();
    let address = format!("https://localhost:{}", upstream.address.port());
    let mut settings = proxy_settings([UpstreamAddress::parse(&address).unwrap()]);
    settings.tls.roots = UpstreamRoots::SystemAnd(authority.path().to_owned());
    let proxy = Proxy::new(settings).unwrap();
    for round in 1..=5 {
        answered(&proxy).await;
        assert_eq!(upstream.connections(), round);
        close.notify_one();
        closed.notified().await;
    }
}
