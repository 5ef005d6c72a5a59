//! Every end of an exchange says whether the upstream can have seen the request.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use justonce_http::ResponseEffect;
use justonce_proxy::{
    Proxy, ProxyBody, ProxyBodyError, ProxyError, ResponseTimeout, UpstreamAddress,
};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};

use crate::parts::{
    Dead, Fed, OK, Upstream, proxy, proxy_settings, read_head, say, settings, settle,
};

fn get() -> Request<Empty<Bytes>> {
    Request::builder().uri("/").header("host", "shop").body(Empty::new()).unwrap()
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("/").header("host", "shop");
    request.body(Full::from(body)).unwrap()
}

#[track_caller]
fn is_error(response: &Response<ProxyBody>, error: ProxyError, effect: ResponseEffect) {
    assert_eq!(response.extensions().get(), Some(&error));
    assert_eq!(response.extensions().get(), Some(&effect));
    assert_eq!(response.status(), error.status());
}

async fn text(response: Response<ProxyBody>) -> Result<Bytes, ProxyBodyError> {
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn h21_a_refused_connection_is_not_executed() {
    let dead = Dead::new();
    let proxy = proxy(dead.address);
    let response = proxy.send(post("pay")).await;
    is_error(&response, ProxyError::NotReached, ResponseEffect::NotExecuted);
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn h21_an_unknown_name_is_not_executed() {
    let nowhere = UpstreamAddress::parse("http://no-such-host.invalid:80").unwrap();
    let proxy = Proxy::new(proxy_settings([nowhere])).unwrap();
    let response = proxy.send(post("pay")).await;
    is_error(&response, ProxyError::NotReached, ResponseEffect::NotExecuted);
}

#[tokio::test]
async fn h21_a_failed_or_endless_tls_handshake_is_not_executed() {
    let garbage = Upstream::start(|mut stream| async move { say(&mut stream, OK).await }).await;
    let silent = Upstream::start(|mut stream| async move {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
    })
    .await;
    for upstream in [garbage, silent] {
        let address = UpstreamAddress::parse(&format!("https://{}", upstream.address)).unwrap();
        let mut settings = proxy_settings([address]);
        settings.timeouts.connect = Duration::from_millis(100);
        let response = Proxy::new(settings).unwrap().send(post("pay")).await;
        is_error(&response, ProxyError::NotReached, ResponseEffect::NotExecuted);
    }
}

#[tokio::test]
async fn h21_no_free_connection_is_not_executed() {
    let (reached, mut seen) = mpsc::channel(1);
    let upstream = Upstream::start(move |mut stream| {
        let reached = reached.clone();
        async move {
            read_head(&mut stream).await;
            reached.send(()).await.unwrap();
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let mut settings = settings(upstream.address);
    settings.max_connections = 1;
    settings.timeouts.connect = Duration::from_millis(50);
    let proxy = Proxy::new(settings).unwrap();
    let other = proxy.clone();
    let hanging = tokio::spawn(async move { other.send(get()).await });
    seen.recv().await.unwrap();
    let response = proxy.send(post("pay")).await;
    is_error(&response, ProxyError::NotReached, ResponseEffect::NotExecuted);
    hanging.abort();
}

#[tokio::test]
async fn a_free_connection_goes_to_who_waits_for_it() {
    let upstream = Upstream::fine().await;
    let mut settings = settings(upstream.address);
    settings.max_connections = 2;
    let proxy = Proxy::new(settings).unwrap();
    let all: Vec<_> = (0..50)
        .map(|_| {
            let proxy = proxy.clone();
            tokio::spawn(async move { text(proxy.send(get()).await).await.unwrap() })
        })
        .collect();
    for one in all {
        assert_eq!(one.await.unwrap(), "ok");
    }
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[tokio::test]
async fn h22_a_connection_lost_after_the_request_is_unknown() {
    let reset = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        // What is not read when a socket is closed makes it a reset.
        stream.set_zero_linger().unwrap();
    })
    .await;
    let closed = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
    })
    .await;
    let garbage = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    })
    .await;
    let half_a_head = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-le").await;
    })
    .await;
    for upstream in [reset, closed, garbage, half_a_head] {
        let response = proxy(upstream.address).send(post("pay")).await;
        is_error(&response, ProxyError::Failed, ResponseEffect::Unknown);
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn h22_no_answer_in_time_is_unknown() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut settings = settings(upstream.address);
    settings.timeouts.response = Duration::from_millis(50);
    let response = Proxy::new(settings).unwrap().send(post("pay")).await;
    is_error(&response, ProxyError::TimedOut, ResponseEffect::Unknown);
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);

    let mut impatient = post("pay");
    impatient.extensions_mut().insert(ResponseTimeout(Duration::from_millis(50)));
    let response = proxy(upstream.address).send(impatient).await;
    is_error(&response, ProxyError::TimedOut, ResponseEffect::Unknown);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_never_an_end() {
    let short = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    })
    .await;
    let unchunked = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf").await;
    })
    .await;
    for upstream in [short, unchunked] {
        let response = proxy(upstream.address).send(get()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(matches!(text(response).await, Err(ProxyBodyError::Upstream(_))));
    }
}

#[tokio::test]
async fn a_body_that_stands_still_ends_with_an_error() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut settings = settings(upstream.address);
    settings.read_timeout = Duration::from_millis(50);
    let response = Proxy::new(settings).unwrap().send(get()).await;
    assert!(matches!(text(response).await, Err(ProxyBodyError::Stalled)));
}

#[tokio::test]
async fn a_request_that_breaks_off_is_not_the_upstreams_fault() {
    let upstream = Upstream::start(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let proxy = proxy(upstream.address);
    for round in 0..30 {
        let (sender, body) = Fed::new();
        let request = Request::builder().method(Method::POST).uri("/").body(body).unwrap();
        let sending = async {
            // Also before anything of it was sent.
            if round % 2 == 0 {
                sender.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
            }
            sender.send(Err(std::io::Error::other("gone"))).await.unwrap();
        };
        let (response, ()) = tokio::join!(proxy.send(request), sending);
        is_error(&response, ProxyError::RequestBroken, ResponseEffect::Unknown);
    }
    assert_eq!(proxy.closed_for(), None);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let upstream = Upstream::fine().await;
    let proxy = proxy(upstream.address);
    for _ in 0..50 {
        assert_eq!(text(proxy.send(get()).await).await.unwrap(), "ok");
        assert_eq!(text(proxy.send(post("hello")).await).await.unwrap(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
    let status = proxy.status().pop().unwrap();
    assert_eq!((status.connections, status.idle, status.in_flight), (1, 1, 0));
}

#[tokio::test]
async fn an_unread_answer_does_not_go_back_to_the_pool() {
    let upstream = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let proxy = proxy(upstream.address);
    drop(proxy.send(get()).await);
    let status = proxy.status().pop().unwrap();
    assert_eq!((status.connections, status.idle, status.in_flight), (0, 0, 0));
}

#[tokio::test]
async fn a_connection_that_died_unused_costs_nothing() {
    let (closed, mut seen) = mpsc::channel(1);
    let upstream = Upstream::start(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_head(&mut stream).await;
            say(&mut stream, OK).await;
            drop(stream);
            closed.send(()).await.unwrap();
        }
    })
    .await;
    let proxy = proxy(upstream.address);
    for round in 1..=10 {
        let response = proxy.send(get()).await;
        assert_eq!(response.status(), StatusCode::OK, "round {round}");
        assert_eq!(text(response).await.unwrap(), "ok");
        seen.recv().await.unwrap();
        settle().await;
    }
    assert_eq!(upstream.connections(), 10);
}

#[tokio::test]
async fn an_early_answer_comes_before_the_request_has_ended() {
    let (all, whole) = oneshot::channel();
    let all = std::sync::Mutex::new(Some(all));
    let upstream = Upstream::start(move |mut stream| {
        let all = all.lock().unwrap().take();
        async move {
            read_head(&mut stream).await;
            say(&mut stream, OK).await;
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"0\r\n\r\n") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            all.unwrap().send(bytes).unwrap();
        }
    })
    .await;
    let (sender, body) = Fed::new();
    let request = Request::builder().method(Method::POST).uri("/").body(body).unwrap();
    let response = proxy(upstream.address).send(request).await;
    // Nobody reads the answer, and still the request goes on.
    sender.send(Ok(Bytes::from_static(b"late"))).await.unwrap();
    drop(sender);
    assert_eq!(whole.await.unwrap(), b"4\r\nlate\r\n0\r\n\r\n");
    assert_eq!(text(response).await.unwrap(), "ok");
}

#[tokio::test]
async fn tunnels_are_refused() {
    let upstream = Upstream::fine().await;
    let request = Request::builder().method(Method::CONNECT).uri("shop:443");
    let response = proxy(upstream.address).send(request.body(Empty::new()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
    assert_eq!(upstream.connections(), 0);
}

/// A stranger who sends half a body is no failure of the upstream.
#[tokio::test]
async fn a_client_that_stops_sending_is_not_blamed_on_the_upstream() {
    let upstream = Upstream::start(|mut stream| async move {
        let (head, _) = read_head(&mut stream).await.unwrap();
        if head.starts_with("get") {
            return say(&mut stream, OK).await;
        }
        // The rest of the body does not come.
        while stream.read_u8().await.is_ok() {}
    })
    .await;
    let mut settings = settings(upstream.address);
    settings.timeouts.response = Duration::from_millis(200);
    settings.breaker.as_mut().unwrap().min_requests = 5;
    let proxy = Proxy::new(settings).unwrap();
    let slow = (0..5).map(|_| {
        let proxy = proxy.clone();
        async move {
            let (feed, body) = Fed::new();
            feed.send(Ok(Bytes::from_static(b"h"))).await.unwrap();
            let request = Request::builder().method(Method::PUT).uri("/").header("host", "shop");
            let response = proxy.send(request.body(body).unwrap()).await;
            drop(feed);
            response
        }
    });
    let slow: Vec<_> = slow.map(tokio::spawn).collect();
    for response in slow {
        let response = response.await.unwrap();
        assert_eq!(response.extensions().get(), Some(&ProxyError::RequestBroken));
    }
    assert_eq!(proxy.closed_for(), None, "the breaker is open for everybody");
    assert_eq!(text(proxy.send(get()).await).await.unwrap(), "ok");
}
