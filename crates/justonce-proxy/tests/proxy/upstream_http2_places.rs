//! HTTP/2 to upstreams: places on connections, what waits for one, and when it is given back.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use justonce_http::ResponseEffect;
use justonce_proxy::{BreakerState, Protocol, Proxy, ProxyError, ProxySettings};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::parts::{Frames, Upstream, proxy_settings};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);
const PAID: (u16, Option<ResponseEffect>) = (200, None);
const NOT_EXECUTED: (u16, Option<ResponseEffect>) = (502, Some(ResponseEffect::NotExecuted));
const UNKNOWN: (u16, Option<ResponseEffect>) = (502, Some(ResponseEffect::Unknown));

/// One connection at most, and all the time that there is.
fn one_connection(upstream: &Upstream) -> ProxySettings {
    let mut settings = proxy_settings([upstream.url()]);
    settings.protocol = Protocol::Http2;
    settings.max_connections = 1;
    settings.timeouts.connect = LONG;
    settings.timeouts.response = LONG;
    settings
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/pay").header("host", "shop").body(Full::from(body)).unwrap()
}

async fn result(proxy: &Proxy, request: Request<Full<Bytes>>) -> (u16, Option<ResponseEffect>) {
    let response = proxy.send(request).await;
    let effect = response.extensions().get::<ProxyError>().map(|error| error.effect());
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    (status, effect)
}

/// Pays in a task of its own.
fn pay(proxy: &Proxy) -> JoinHandle<(u16, Option<ResponseEffect>)> {
    let proxy = proxy.clone();
    tokio::spawn(async move { result(&proxy, post("pay")).await })
}

async fn ended(task: JoinHandle<(u16, Option<ResponseEffect>)>) -> (u16, Option<ResponseEffect>) {
    timeout(LONG, task).await.expect("it ends").unwrap()
}

/// What a server is told to do.
enum Do {
    Allow(u8),
    Answer(u32),
}

/// A server of frames: it tells which requests come, and does what it is told.
async fn frames(
    first: Option<u8>,
) -> (Upstream, mpsc::UnboundedReceiver<u32>, mpsc::UnboundedSender<Do>) {
    let (came, requests) = mpsc::unbounded_channel();
    let (tell, told) = mpsc::unbounded_channel();
    let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
    let upstream = Upstream::start(move |stream: TcpStream| {
        let (came, told) = (came.clone(), std::sync::Arc::clone(&told));
        async move {
            let mut frames = Frames::accept(stream).await;
            if let Some(requests) = first {
                frames.allow(requests).await;
            }
            let mut told = told.lock().await;
            loop {
                tokio::select! {
                    request = frames.request() => match request {
                        Some(stream) => came.send(stream).unwrap(),
                        None => return,
                    },
                    Some(what) = told.recv() => match what {
                        Do::Allow(requests) => frames.allow(requests).await,
                        Do::Answer(stream) => frames.ok(stream).await,
                    },
                }
            }
        }
    })
    .await;
    (upstream, requests, tell)
}

#[tokio::test]
async fn what_only_waited_for_a_place_was_not_sent() {
    let (upstream, mut came, tell) = frames(Some(1)).await;
    let mut settings = one_connection(&upstream);
    settings.timeouts.connect = Duration::from_millis(200);
    settings.breaker = None;
    let proxy = Proxy::new(settings).unwrap();
    let first = pay(&proxy);
    let stream = came.recv().await.unwrap();
    for _ in 0..3 {
        assert_eq!(ended(pay(&proxy)).await, NOT_EXECUTED);
    }
    tell.send(Do::Answer(stream)).unwrap();
    assert_eq!(ended(first).await, PAID);
    assert!(came.try_recv().is_err(), "nothing else was sent");
    let next = pay(&proxy);
    tell.send(Do::Answer(came.recv().await.unwrap())).unwrap();
    assert_eq!(ended(next).await, PAID);
}

#[tokio::test]
async fn those_who_wait_go_on_when_the_upstream_allows_more() {
    let (upstream, mut came, tell) = frames(Some(1)).await;
    let proxy = Proxy::new(one_connection(&upstream)).unwrap();
    let running: Vec<_> = (0..3).map(|_| pay(&proxy)).collect();
    let first = came.recv().await.unwrap();
    // None of them ends in the meantime.
    tell.send(Do::Allow(3)).unwrap();
    let mut streams = vec![first];
    while streams.len() < 3 {
        streams.push(timeout(LONG, came.recv()).await.expect("there is room").unwrap());
    }
    streams.into_iter().for_each(|stream| tell.send(Do::Answer(stream)).unwrap());
    for one in running {
        assert_eq!(ended(one).await, PAID);
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_upstream_has_said_what_it_allows() {
    let (upstream, mut came, _tell) = frames(None).await;
    let mut settings = one_connection(&upstream);
    settings.timeouts.connect = Duration::from_millis(200);
    assert_eq!(ended(pay(&Proxy::new(settings).unwrap())).await, NOT_EXECUTED);
    assert!(came.try_recv().is_err());
    let (upstream, mut came, tell) = frames(None).await;
    let proxy = Proxy::new(one_connection(&upstream)).unwrap();
    let running: Vec<_> = (0..4).map(|_| pay(&proxy)).collect();
    tell.send(Do::Allow(2)).unwrap();
    for _ in 0..4 {
        let stream = timeout(LONG, came.recv()).await.expect("one after the other").unwrap();
        tell.send(Do::Answer(stream)).unwrap();
    }
    for one in running {
        assert_eq!(ended(one).await, PAID);
    }
}

#[tokio::test]
async fn a_server_of_http1_gets_nothing_of_a_request() {
    let upstream = Upstream::fine().await;
    let proxy = Proxy::new(one_connection(&upstream)).unwrap();
    assert_eq!(ended(pay(&proxy)).await, NOT_EXECUTED);
}

/// An upstream that takes nothing of request bodies and allows one request at a time. It answers
/// GET, begins a response to PUT, and leaves POST without one. It tells which of those came.
async fn stubborn() -> (Upstream, mpsc::UnboundedReceiver<()>) {
    let (came, posts) = mpsc::unbounded_channel();
    let serve = move |stream, came: mpsc::UnboundedSender<()>| async move {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(1).initial_window_size(0);
        let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let mut held = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            if request.method() == "POST" {
                came.send(()).unwrap();
                held.push((request, respond, None));
                continue;
            }
            let is_get = request.method() == "GET";
            let body = respond.send_response(Response::new(()), is_get).unwrap();
            if !is_get {
                held.push((request, respond, Some(body)));
            }
        }
    };
    (Upstream::start(move |stream| serve(stream, came.clone())).await, posts)
}

#[tokio::test]
async fn an_exchange_that_ends_takes_its_stream_with_it() {
    let (upstream, mut posts) = stubborn().await;
    let mut settings = one_connection(&upstream);
    settings.timeouts.response = Duration::from_millis(100);
    settings.breaker = None;
    let proxy = Proxy::new(settings).unwrap();
    let get = || Request::get("/").header("host", "shop").body(Full::<Bytes>::default()).unwrap();
    let put = || Request::put("/").header("host", "shop").body(Full::from("pay")).unwrap();
    for _ in 0..3 {
        // It times out.
        let late = (504, Some(ResponseEffect::Unknown));
        assert_eq!(timeout(LONG, result(&proxy, post("pay"))).await.unwrap(), late);
        assert_eq!(timeout(LONG, result(&proxy, get())).await.expect("its place is free"), PAID);
        posts.recv().await.unwrap();
        // Its caller leaves before the response.
        let gone = pay(&proxy);
        posts.recv().await.unwrap();
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        assert_eq!(timeout(LONG, result(&proxy, get())).await.expect("its place is free"), PAID);
        // Its caller leaves while the response is read, and the request still sent.
        let response = timeout(LONG, proxy.send(put())).await.unwrap();
        assert_eq!(response.status(), 200);
        drop(response);
        assert_eq!(timeout(LONG, result(&proxy, get())).await.expect("its place is free"), PAID);
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_opens_slowly_stops_nobody_on_the_others() {
    let (came, mut requests) = mpsc::unbounded_channel();
    let is_first = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let upstream = Upstream::start(move |stream: TcpStream| {
        let (came, is_first) = (came.clone(), std::sync::Arc::clone(&is_first));
        async move {
            if !is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                // Accepted, and nothing more.
                let _open = stream;
                came.send(None).unwrap();
                return pending().await;
            }
            let mut builder = Builder::new();
            builder.max_concurrent_streams(1);
            let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
            while let Some(Ok((_, respond))) = connection.accept().await {
                came.send(Some(respond)).unwrap();
            }
        }
    })
    .await;
    let mut settings = one_connection(&upstream);
    settings.max_connections = 2;
    let proxy = Proxy::new(settings).unwrap();
    let first = pay(&proxy);
    let mut held = requests.recv().await.unwrap().expect("a request");
    let second = pay(&proxy);
    assert!(requests.recv().await.unwrap().is_none(), "another connection is being opened");
    assert_eq!(proxy.status()[0].connections, 1, "it is known what there is meanwhile");
    held.send_response(Response::new(()), true).unwrap();
    assert_eq!(ended(first).await, PAID);
    let next = timeout(LONG, requests.recv()).await.expect("it takes the place that is free");
    next.unwrap().expect("a request").send_response(Response::new(()), true).unwrap();
    assert_eq!(ended(second).await, PAID);
}

#[tokio::test]
async fn not_more_wait_than_a_bound() {
    let upstream = Upstream::start(|stream| async {
        let _open = stream;
        pending::<()>().await;
    })
    .await;
    let proxy = Proxy::new(one_connection(&upstream)).unwrap();
    let waiting: Vec<_> = (0..4096).map(|_| pay(&proxy)).collect();
    while proxy.status()[0].in_flight < 4096 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ended(pay(&proxy)).await, NOT_EXECUTED);
    assert_eq!(proxy.status()[0].breaker, BreakerState::Closed, "it says nothing about it");
    waiting.iter().for_each(JoinHandle::abort);
}

/// An upstream that resets all streams.
async fn resetting(reason: Reason) -> Upstream {
    Upstream::start(move |stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let _: &mut h2::server::SendResponse<Bytes> = &mut respond;
            respond.send_reset(reason);
        }
    })
    .await
}

#[tokio::test]
async fn what_was_not_processed_says_nothing_about_the_upstream() {
    for (reason, expected, state) in [
        (Reason::REFUSED_STREAM, NOT_EXECUTED, BreakerState::Closed),
        (Reason::INTERNAL_ERROR, UNKNOWN, BreakerState::Open),
    ] {
        let upstream = resetting(reason).await;
        let proxy = Proxy::new(one_connection(&upstream)).unwrap();
        for _ in 0..20 {
            assert_eq!(ended(pay(&proxy)).await, expected, "{reason}");
        }
        assert_eq!(proxy.status()[0].breaker, state, "{reason}");
    }
    let leaving = Upstream::start(|stream| async {
        let mut frames = Frames::accept(stream).await;
        frames.settings().await;
        frames.request().await.unwrap();
        frames.go_away(0).await;
        frames.end().await;
    })
    .await;
    let proxy = Proxy::new(one_connection(&leaving)).unwrap();
    for _ in 0..20 {
        assert_eq!(ended(pay(&proxy)).await, NOT_EXECUTED);
    }
    assert_eq!(proxy.status()[0].breaker, BreakerState::Closed);
}

#[tokio::test]
async fn what_one_upstream_did_not_process_goes_to_another() {
    let refusing = resetting(Reason::REFUSED_STREAM).await;
    let (bodies, mut seen) = mpsc::unbounded_channel();
    let fine = Upstream::start(move |stream| {
        let bodies = bodies.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let bodies = bodies.clone();
                tokio::spawn(async move {
                    let body = request.into_body().data().await.unwrap().unwrap();
                    bodies.send(body).unwrap();
                    let mut sent = respond.send_response(Response::new(()), false).unwrap();
                    sent.send_data(Bytes::from_static(b"ok"), true).unwrap();
                });
            }
        }
    })
    .await;
    let mut settings = one_connection(&refusing);
    settings.upstreams = vec![refusing.url(), fine.url()];
    let proxy = Proxy::new(settings).unwrap();
    for _ in 0..4 {
        assert_eq!(ended(pay(&proxy)).await, PAID);
        assert_eq!(seen.recv().await.unwrap(), "pay");
    }
}

#[tokio::test]
async fn idle_connections_end_and_new_ones_take_their_place() {
    let (over, mut ends) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |stream| {
        let over = over.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            }
            over.send(()).unwrap();
        }
    })
    .await;
    let mut settings = one_connection(&upstream);
    settings.timeouts.idle = Duration::from_millis(100);
    let proxy = Proxy::new(settings).unwrap();
    for connections in 1..=3 {
        assert_eq!(ended(pay(&proxy)).await, PAID);
        assert_eq!(upstream.connections(), connections);
        timeout(LONG, ends.recv()).await.expect("it ends after its idle time").unwrap();
        assert_eq!(proxy.status()[0].connections, 0);
    }
}

#[tokio::test]
async fn a_connection_in_use_does_not_end_for_its_idle_time() {
    let (upstream, mut came, tell) = frames(Some(8)).await;
    let mut settings = one_connection(&upstream);
    settings.timeouts.idle = Duration::from_millis(50);
    let proxy = Proxy::new(settings).unwrap();
    let first = pay(&proxy);
    let stream = came.recv().await.unwrap();
    let over = Duration::from_millis(200);
    tokio::time::sleep(over).await; // tidy: allow-sleep: nothing tells that the time is over
    tell.send(Do::Answer(stream)).unwrap();
    assert_eq!(ended(first).await, PAID);
    assert_eq!(upstream.connections(), 1);
}

/// The server refuses streams beyond what it allows, so a place that is given too early shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn places_are_neither_lost_nor_given_twice() {
    let upstream = Upstream::start(|stream| async {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(3).initial_window_size(2);
        let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let mut body = request.into_body();
                while let Some(Ok(data)) = body.data().await {
                    let _ = body.flow_control().release_capacity(data.len());
                }
                // Refused if its caller has left.
                if let Ok(mut back) = respond.send_response(Response::new(()), false) {
                    let _ = back.send_data(Bytes::from_static(b"ok"), true);
                }
            });
        }
    })
    .await;
    let mut settings = one_connection(&upstream);
    settings.max_connections = 2;
    settings.breaker = None;
    let proxy = Proxy::new(settings).unwrap();
    let mut running = Vec::new();
    for number in 0..2_000_u32 {
        let (proxy, leaves) = (proxy.clone(), number % 3 == 0);
        running.push(tokio::spawn(async move {
            if leaves {
                // After some steps of any kind.
                let patience = Duration::from_micros(u64::from(number % 700));
                let _ = timeout(patience, result(&proxy, post("a payment"))).await;
                return PAID;
            }
            result(&proxy, post("a payment")).await
        }));
    }
    for one in running {
        assert_eq!(timeout(LONG, one).await.expect("none is lost").unwrap(), PAID);
    }
    for _ in 0..6 {
        assert_eq!(ended(pay(&proxy)).await, PAID);
    }
    let status = proxy.status().remove(0);
    assert_eq!((status.in_flight, status.idle), (0, status.connections));
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}
