//! Unix sockets on both sides.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use justonce_http::ResponseEffect;
use justonce_net::SocketAddress;
use justonce_proxy::{
    HealthCheck, ListenSocket, Listener, Proxy, ProxyError, TrustedProxies, UpstreamAddress,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::parts::{
    OK, Upstream, listener_settings, proxy_settings, read_answer, read_head, read_rest, say,
    settings,
};

/// Far below the response timeout of 30 s: whoever waits for that is stuck.
const AT_ONCE: Duration = Duration::from_secs(5);

fn listener(path: &Path) -> Listener {
    let address = SocketAddress::Unix(path.to_owned());
    let socket = ListenSocket::bind(&address, 0o600).unwrap();
    Listener::on(socket, listener_settings()).unwrap()
}

fn url(path: &Path) -> UpstreamAddress {
    UpstreamAddress::parse(&format!("unix:{}", path.display())).unwrap()
}

fn post() -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("/").header("host", "shop");
    request.body(Full::from("pay")).unwrap()
}

/// The head that an upstream gets of a request that comes over a Unix socket.
async fn forwarded(proxies: TrustedProxies, head: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let (heads, mut seen) = mpsc::channel(1);
    let upstream = Upstream::start(move |mut stream| {
        let heads = heads.clone();
        async move {
            let (head, _) = read_head(&mut stream).await.unwrap();
            heads.send(head).await.unwrap();
            say(&mut stream, OK).await;
        }
    })
    .await;
    let proxy = Proxy::new(settings(upstream.address)).unwrap();
    let listener = listener(&path).with_proxies(proxies);
    tokio::spawn(listener.serve(move || proxy.clone(), std::future::pending(), AT_ONCE));
    let mut client = UnixStream::connect(&path).await.unwrap();
    say(&mut client, head).await;
    assert_eq!(read_answer(&mut client).await.1, "ok");
    seen.recv().await.unwrap()
}

#[tokio::test]
async fn who_connects_over_a_unix_socket_has_no_address_and_is_not_believed() {
    let head = "GET / HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
    // Addresses are trusted, and it has none.
    let ranges = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    let seen = forwarded(TrustedProxies { ranges, ..TrustedProxies::default() }, head).await;
    assert!(seen.contains("\r\nx-forwarded-for: unknown\r\n"), "{seen}");
    assert!(seen.contains("\r\nforwarded: for=unknown;host=shop;proto=http\r\n"), "{seen}");
}

#[tokio::test]
async fn a_proxy_on_a_unix_socket_is_believed_if_that_is_said() {
    let proxies = || TrustedProxies { unix: true, ..TrustedProxies::default() };
    let head = "GET / HTTP/1.1\r\nHost: inner\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.9\r\n\
                X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\n\r\n";
    let seen = forwarded(proxies(), head).await;
    assert!(seen.contains("\r\nx-forwarded-for: 203.0.113.9\r\n"), "{seen}");
    assert!(seen.contains("\r\nforwarded: for=203.0.113.9;host=shop;proto=https\r\n"), "{seen}");
    let proxies = TrustedProxies { proxy_protocol: true, ..proxies() };
    let head = "PROXY TCP4 203.0.113.9 10.0.0.1 4660 80\r\nGET / HTTP/1.1\r\nHost: shop\r\n\r\n";
    let seen = forwarded(proxies.clone(), head).await;
    assert!(seen.contains("\r\nx-forwarded-for: 203.0.113.9\r\n"), "{seen}");
    // Whose the connection is, is not told: then its headers do not count either.
    let head = "PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n";
    let seen = forwarded(proxies, head).await;
    assert!(seen.contains("\r\nx-forwarded-for: unknown\r\n"), "{seen}");
}

#[tokio::test]
async fn a_proxy_protocol_header_from_a_unix_socket_that_is_not_trusted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let proxies = TrustedProxies { proxy_protocol: true, ..TrustedProxies::default() };
    let upstream = Upstream::fine().await;
    let proxy = Proxy::new(settings(upstream.address)).unwrap();
    let listener = listener(&path).with_proxies(proxies);
    let handle = listener.handle();
    tokio::spawn(listener.serve(move || proxy.clone(), std::future::pending(), AT_ONCE));
    let mut client = UnixStream::connect(&path).await.unwrap();
    say(&mut client, "PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    assert_eq!(read_rest(&mut client).await, "");
    assert_eq!(handle.stats().bad_source, 1);
}

#[tokio::test]
async fn the_file_goes_with_its_listener_and_never_another_ones() {
    for is_replaced in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("http.sock");
        let listener = listener(&path);
        let (stop, stopped) = oneshot::channel::<()>();
        let proxy = Proxy::new(settings("127.0.0.1:1".parse().unwrap())).unwrap();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(listener.serve(move || proxy.clone(), shutdown, AT_ONCE));
        let mut other = None;
        if is_replaced {
            std::fs::remove_file(&path).unwrap();
            other = Some(UnixListener::bind(&path).unwrap());
        }
        stop.send(()).unwrap();
        serving.await.unwrap();
        assert_eq!(path.exists(), is_replaced);
        drop(other);
    }
}

/// A service on a Unix socket that answers each connection as told.
fn service<F: Future<Output = ()> + Send + 'static>(
    handle: impl Fn(UnixStream) -> F + Send + 'static,
) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("service.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    (directory, path)
}

async fn answer_all(mut stream: UnixStream) {
    while let Some((head, body)) = read_head(&mut stream).await {
        assert!(head.contains("\r\nhost: shop\r\n") || head.contains("host: localhost"), "{head}");
        // The body comes with the head, or right behind it.
        if head.starts_with("post") {
            let mut rest = vec![0; 3 - body.len()];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut rest).await.unwrap();
        }
        say(&mut stream, OK).await;
    }
}

async fn status(proxy: &Proxy) -> (StatusCode, Option<ResponseEffect>, Option<ProxyError>) {
    let response = timeout(AT_ONCE, proxy.send(post())).await.expect("it hangs");
    let (parts, body) = response.into_parts();
    let _ = body.collect().await;
    (parts.status, parts.extensions.get().copied(), parts.extensions.get().copied())
}

#[tokio::test]
async fn services_on_unix_sockets_are_reached_checked_and_their_connections_used_again() {
    let (_directory, path) = service(answer_all);
    let mut settings = proxy_settings([url(&path)]);
    settings.health = Some(HealthCheck::new("/healthz".parse().unwrap()));
    let proxy = Proxy::new(settings).unwrap();
    for _ in 0..5 {
        assert_eq!(status(&proxy).await.0, StatusCode::OK);
    }
    let [one] = &proxy.status()[..] else { panic!("one address") };
    assert_eq!((one.connections, one.idle), (1, 1));
    assert_eq!(one.upstream.to_string(), format!("unix:{}", path.display()));
    assert_eq!(proxy.check_health().await[0].failure, None);
    std::fs::remove_file(&path).unwrap();
    assert!(proxy.check_health().await[0].failure.is_some());
}

#[tokio::test]
async fn h21_a_unix_socket_that_nobody_serves_is_not_reached() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("service.sock");
    let proxy = Proxy::new(proxy_settings([url(&path)])).unwrap();
    let not_executed =
        (StatusCode::BAD_GATEWAY, Some(ResponseEffect::NotExecuted), Some(ProxyError::NotReached));
    assert_eq!(status(&proxy).await, not_executed, "there is no file");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(status(&proxy).await, not_executed, "its process is gone");
}

#[tokio::test]
async fn h40_a_connection_that_a_service_has_closed_while_idle_costs_nothing() {
    // Each connection is closed after its first answer, of which the runtime has not heard.
    let (_directory, path) = service(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, OK).await;
        let std = stream.into_std().unwrap();
        std.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let proxy = Proxy::new(proxy_settings([url(&path)])).unwrap();
    for _ in 0..20 {
        assert_eq!(status(&proxy).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn h22_a_service_that_has_read_something_and_closes_is_unknown() {
    let (_directory, path) = service(|mut stream| async move {
        read_head(&mut stream).await;
    });
    let proxy = Proxy::new(proxy_settings([url(&path)])).unwrap();
    let unknown =
        (StatusCode::BAD_GATEWAY, Some(ResponseEffect::Unknown), Some(ProxyError::Failed));
    assert_eq!(status(&proxy).await, unknown);
}

#[tokio::test]
async fn a_queue_of_connections_that_is_full_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("service.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    socket.set_nonblocking(true).unwrap();
    let first = UnixStream::connect(&path).await.unwrap();
    assert!(UnixStream::connect(&path).await.is_err(), "the queue has one place");
    let proxy = Proxy::new(proxy_settings([url(&path)])).unwrap();
    let asked = tokio::spawn(async move { status(&proxy).await });
    tokio::task::yield_now().await;
    drop(first);
    let listener = UnixListener::from_std(socket.into()).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream));
        }
    });
    assert_eq!(asked.await.unwrap().0, StatusCode::OK);
}
