//! Several upstreams, and upstreams that are left alone.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use justonce_http::ResponseEffect;
use justonce_proxy::{Balance, BreakerState, Proxy, ProxyError};
use tokio::sync::mpsc;

use crate::parts::{Dead, Upstream, answer_all, proxy_settings, read_head, settings, url};

fn get() -> Request<Empty<Bytes>> {
    Request::builder().uri("/").header("host", "shop").body(Empty::new()).unwrap()
}

async fn status(proxy: &Proxy) -> StatusCode {
    let response = proxy.send(get()).await;
    let status = response.status();
    response.into_body().collect().await.unwrap();
    status
}

#[tokio::test]
async fn a_dead_upstream_is_left_alone_and_comes_back() {
    let dead = Dead::new();
    let mut settings = settings(dead.address);
    settings.breaker.as_mut().unwrap().open_for = Duration::from_millis(200);
    let proxy = Proxy::new(settings).unwrap();
    let breaker = || proxy.status().pop().unwrap().breaker;

    for _ in 0..4 {
        assert_eq!(status(&proxy).await, StatusCode::BAD_GATEWAY);
        assert_eq!(proxy.closed_for(), None);
    }
    assert_eq!(status(&proxy).await, StatusCode::BAD_GATEWAY);
    let wait = proxy.closed_for().unwrap();
    assert!(wait <= Duration::from_millis(200), "{wait:?}");
    assert_eq!(breaker(), BreakerState::Open);

    // It is there again, but nobody looks before the time is up.
    let upstream = Upstream::on(dead.listen(), answer_all);
    let response = proxy.send(get()).await;
    assert_eq!(response.extensions().get(), Some(&ProxyError::NotReached));
    assert_eq!(response.extensions().get(), Some(&ResponseEffect::NotExecuted));
    assert_eq!(upstream.connections(), 0);

    while let Some(wait) = proxy.closed_for() {
        tokio::time::sleep(wait).await; // tidy: allow-sleep: the time is the answer
    }
    assert_eq!(breaker(), BreakerState::HalfOpen);
    assert_eq!(status(&proxy).await, StatusCode::OK);
    assert_eq!(breaker(), BreakerState::Closed);
}

#[tokio::test]
async fn errors_of_the_application_are_no_failures_of_the_upstream() {
    let upstream = Upstream::start(|mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            let answer = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
            crate::parts::say(&mut stream, answer).await;
        }
    })
    .await;
    let proxy = crate::parts::proxy(upstream.address);
    let mut strict = settings(upstream.address);
    strict.gateway_errors_count = true;
    let strict = Proxy::new(strict).unwrap();
    for _ in 0..20 {
        assert_eq!(status(&proxy).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(&strict).await, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(proxy.closed_for(), None);
    assert!(strict.closed_for().is_some());
}

#[tokio::test]
async fn an_abandoned_trial_leaves_room_for_the_next() {
    let (reached, mut seen) = mpsc::channel(1);
    let dead = Dead::new();
    let mut settings = settings(dead.address);
    settings.breaker.as_mut().unwrap().open_for = Duration::from_millis(1);
    let proxy = Proxy::new(settings).unwrap();
    for _ in 0..5 {
        status(&proxy).await;
    }
    let _upstream = Upstream::on(dead.listen(), move |mut stream| {
        let reached = reached.clone();
        async move {
            read_head(&mut stream).await;
            reached.send(stream).await.unwrap();
        }
    });
    while let Some(wait) = proxy.closed_for() {
        tokio::time::sleep(wait).await; // tidy: allow-sleep: the time is the answer
    }
    let other = proxy.clone();
    let trial = tokio::spawn(async move { status(&other).await });
    let held = seen.recv().await.unwrap();
    assert!(proxy.closed_for().is_some(), "one trial at a time");
    trial.abort();
    assert!(trial.await.unwrap_err().is_cancelled());
    assert_eq!(proxy.closed_for(), None);
    drop(held);
}

#[tokio::test]
async fn the_next_upstream_takes_what_the_first_could_not() {
    let fine = Upstream::fine().await;
    let dead = Dead::new();
    let proxy = Proxy::new(proxy_settings([url(dead.address), fine.url()])).unwrap();
    for _ in 0..40 {
        assert_eq!(status(&proxy).await, StatusCode::OK);
    }
    let states: Vec<_> = proxy.status().iter().map(|one| one.breaker).collect();
    assert_eq!(states, [BreakerState::Open, BreakerState::Closed]);
    assert_eq!(proxy.closed_for(), None, "one is enough");
}

#[tokio::test]
async fn equal_upstreams_take_turns_and_busy_ones_rest() {
    let one = Upstream::fine().await;
    let other = Upstream::fine().await;
    let proxy = Proxy::new(proxy_settings([one.url(), other.url()])).unwrap();
    for _ in 0..10 {
        assert_eq!(status(&proxy).await, StatusCode::OK);
    }
    assert_eq!((one.connections(), other.connections()), (1, 1));

    let (busy, mut seen) = Upstream::told().await;
    let proxy = Proxy::new(proxy_settings([busy.url(), one.url()])).unwrap();
    let other = proxy.clone();
    let hanging = tokio::spawn(async move {
        loop {
            status(&other).await;
        }
    });
    let held = seen.recv().await.unwrap();
    for _ in 0..10 {
        assert_eq!(status(&proxy).await, StatusCode::OK);
    }
    assert_eq!(busy.connections(), 1);
    hanging.abort();
    drop(held);
}

#[tokio::test]
async fn in_turn_means_in_turn_whatever_is_under_way() {
    let (busy, mut seen) = Upstream::told().await;
    let other = Upstream::fine().await;
    let mut settings = proxy_settings([busy.url(), other.url()]);
    settings.balance = Balance::RoundRobin;
    let proxy = Proxy::new(settings).unwrap();
    let mut held = Vec::new();
    let mut hanging = Vec::new();
    for _ in 0..3 {
        let one = proxy.clone();
        hanging.push(tokio::spawn(async move { status(&one).await }));
        held.push(seen.recv().await.unwrap());
        assert_eq!(status(&proxy).await, StatusCode::OK);
    }
    assert_eq!((busy.connections(), other.connections()), (3, 1));
    assert_eq!(proxy.status().iter().map(|one| one.in_flight).collect::<Vec<_>>(), [3, 0]);
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}
