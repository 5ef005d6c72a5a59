//! A listener that hands its socket over, or takes it back.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use justonce_proxy::{Listener, ListenerHandle, Proxy};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::parts::{
    OK, Upstream, listener, listener_settings, read_answer, read_rest, say, settings,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LIMIT: Duration = Duration::from_secs(10);

/// A gateway whose listener is changed while it runs.
struct Changed {
    address: std::net::SocketAddr,
    handle: ListenerHandle,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<justonce_proxy::ConnectionCounts>,
    _upstream: Upstream,
}

impl Changed {
    async fn start() -> Self {
        Self::to(Upstream::fine().await, listener(listener_settings())).await
    }

    async fn to(upstream: Upstream, listener: Listener) -> Self {
        let proxy = Proxy::new(settings(upstream.address)).unwrap();
        let (address, handle) = (listener.local_addr().unwrap(), listener.handle());
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(listener.serve(move || proxy.clone(), shutdown, LIMIT));
        Self { address, handle, stop, serving, _upstream: upstream }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn asked(&self, stream: &mut TcpStream) -> String {
        say(stream, GET).await;
        let (head, body) = timeout(LIMIT, read_answer(stream)).await.unwrap();
        assert_eq!(body, "ok");
        head
    }

    /// Waits until so many connections may bring requests.
    async fn askers(&self, count: usize) {
        while self.handle.askers().now != count {
            tokio::task::yield_now().await;
        }
    }
}

const CLOSES: &str = "connection: close\r\n";

#[tokio::test]
async fn h55_while_it_leaves_each_response_closes_its_connection() {
    let gateway = Changed::start().await;
    let (mut old, mut other) = (gateway.connect().await, gateway.connect().await);
    assert!(!gateway.asked(&mut old).await.contains(CLOSES));
    assert!(!gateway.asked(&mut other).await.contains(CLOSES));
    gateway.handle.leave();
    assert_eq!(gateway.handle.askers().before, 2);
    let head = gateway.asked(&mut old).await;
    assert_eq!(head.matches("connection:").count(), 1, "{head}");
    assert!(head.contains(CLOSES), "{head}");
    assert_eq!(read_rest(&mut old).await, "");
    // Connections are accepted as before.
    let mut new = gateway.connect().await;
    assert!(gateway.asked(&mut new).await.contains(CLOSES));
    gateway.askers(1).await;
    assert_eq!(gateway.handle.askers().before, 1);
    // One that has seen nothing of it goes on.
    gateway.handle.resume();
    assert!(!gateway.asked(&mut other).await.contains(CLOSES));
    assert!(!gateway.asked(&mut other).await.contains(CLOSES));
}

#[tokio::test]
async fn h55_connections_wait_while_it_does_not_accept() {
    let gateway = Changed::start().await;
    gateway.handle.stop_accepting();
    while !gateway.handle.has_stopped_accepting() {
        tokio::task::yield_now().await;
    }
    let mut waiting = gateway.connect().await;
    say(&mut waiting, GET).await;
    assert_eq!(gateway.handle.stats().accepted, 0);
    gateway.handle.resume();
    assert_eq!(timeout(LIMIT, read_answer(&mut waiting)).await.unwrap().1, "ok");
    assert_eq!(gateway.handle.stats().accepted, 1);
}

#[tokio::test]
async fn h55_a_drain_ends_no_request_that_has_begun_or_is_on_its_way() {
    let gateway = Changed::start().await;
    let (mut idle, mut begun, mut fresh) =
        (gateway.connect().await, gateway.connect().await, gateway.connect().await);
    gateway.asked(&mut idle).await;
    gateway.asked(&mut begun).await;
    say(&mut begun, "GET / HT").await;
    gateway.askers(3).await;
    // What has been written is in the socket: the runtime hears of it with the next connection.
    crate::parts::settle().await;
    gateway.handle.stop_accepting();
    gateway.handle.drain();
    // Nothing is on its way here.
    assert_eq!(read_rest(&mut idle).await, "");
    say(&mut begun, "TP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(read_answer(&mut begun).await.0.contains(CLOSES));
    assert!(gateway.asked(&mut fresh).await.contains(CLOSES));
    assert_eq!((read_rest(&mut begun).await, read_rest(&mut fresh).await).0, "");
    gateway.askers(0).await;
    // Who says nothing has a moment, and no more.
    gateway.stop.send(()).unwrap();
    let counts = timeout(LIMIT, gateway.serving).await.unwrap().unwrap();
    assert_eq!((counts.accepted, counts.dropped), (3, 0));
}

#[tokio::test]
async fn h55_a_connection_that_says_nothing_holds_a_drain_for_a_moment_only() {
    let gateway = Changed::start().await;
    let mut silent = gateway.connect().await;
    gateway.askers(1).await;
    gateway.handle.stop_accepting();
    gateway.handle.drain();
    assert_eq!(timeout(LIMIT, read_rest(&mut silent)).await.unwrap(), "");
    gateway.askers(0).await;
}

#[tokio::test]
async fn h55_http2_clients_are_told_which_requests_were_taken() {
    let (reached, mut seen) = tokio::sync::mpsc::channel(1);
    // The first request is held, the others are answered and counted.
    let upstream = Upstream::start(move |mut stream| {
        let reached = reached.clone();
        async move {
            while let Some((head, _)) = crate::parts::read_head(&mut stream).await {
                if head.starts_with("get /held ") {
                    return reached.send(stream).await.unwrap();
                }
                say(&mut stream, OK).await;
            }
        }
    })
    .await;
    let gateway = Changed::to(upstream, listener(listener_settings())).await;
    let io = TokioIo::new(gateway.connect().await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = |path| Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let running = tokio::spawn(sender.send_request(request("http://a/held")));
    let mut held = seen.recv().await.unwrap();
    gateway.handle.stop_accepting();
    gateway.handle.drain();
    // What was sent before it has heard of that is answered, and what comes later is not sent.
    while let Ok(answer) = timeout(LIMIT, sender.send_request(request("http://a/"))).await.unwrap()
    {
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
    }
    say(&mut held, OK).await;
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    gateway.askers(0).await;
}
