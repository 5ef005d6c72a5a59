//! Health checks: who is asked, what it means, and who gets requests then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use justonce_proxy::{HealthCheck, HostHeader, Proxy, ProxyError, UpstreamAddress};
use tokio::sync::mpsc;

use crate::parts::{Dead, OK, Upstream, proxy_settings, read_head, say, url};

const SICK: &str = "HTTP/1.1 503 Sick\r\ncontent-length: 0\r\n\r\n";

/// A service with a health page.
struct Service {
    upstream: Upstream,
    is_sick: Arc<AtomicBool>,
    /// How many requests it got beside checks.
    requests: Arc<AtomicUsize>,
}

impl Service {
    /// Answers its health page as told, and everything else with this; nothing closes.
    async fn start(answer: &'static str) -> Self {
        let (is_sick, requests) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (sick, count) = (Arc::clone(&is_sick), Arc::clone(&requests));
        let upstream = Upstream::start(move |mut stream| {
            let (sick, count) = (Arc::clone(&sick), Arc::clone(&count));
            async move {
                while let Some((head, _)) = read_head(&mut stream).await {
                    if head.starts_with("get /healthz ") {
                        let is_sick = sick.load(Ordering::SeqCst);
                        say(&mut stream, if is_sick { SICK } else { OK }).await;
                        continue;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    if answer.is_empty() {
                        return;
                    }
                    say(&mut stream, answer).await;
                }
            }
        })
        .await;
        Self { upstream, is_sick, requests }
    }

    fn set_sick(&self, is_sick: bool) {
        self.is_sick.store(is_sick, Ordering::SeqCst);
    }

    /// How many requests it got since the last call.
    fn taken(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

fn check() -> HealthCheck {
    HealthCheck::new("/healthz".parse().unwrap())
}

fn checked(upstreams: impl IntoIterator<Item = UpstreamAddress>, check: HealthCheck) -> Proxy {
    let mut settings = proxy_settings(upstreams);
    settings.health = Some(check);
    Proxy::new(settings).unwrap()
}

async fn send(proxy: &Proxy, count: usize) {
    for _ in 0..count {
        let request = Request::get("/").header("host", "shop").body(Empty::<Bytes>::new());
        let response = proxy.send(request.unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
    }
}

async fn rounds(proxy: &Proxy, count: usize) {
    for _ in 0..count {
        proxy.check_health().await;
    }
}

fn healthy(proxy: &Proxy) -> Vec<bool> {
    proxy.status().iter().map(|one| one.is_healthy).collect()
}

#[tokio::test]
async fn an_unhealthy_address_gets_nothing_until_it_is_healthy_again() {
    let (one, other) = (Service::start(OK).await, Service::start(OK).await);
    let proxy = checked([one.upstream.url(), other.upstream.url()], check());
    rounds(&proxy, 1).await;
    send(&proxy, 10).await;
    assert_eq!((one.taken(), other.taken()), (5, 5));

    one.set_sick(true);
    rounds(&proxy, 2).await;
    assert_eq!(healthy(&proxy), [true, true], "two failures are not enough");
    rounds(&proxy, 1).await;
    assert_eq!(healthy(&proxy), [false, true]);
    send(&proxy, 10).await;
    assert_eq!((one.taken(), other.taken()), (0, 10));
    assert_eq!(proxy.closed_for(), None);

    one.set_sick(false);
    rounds(&proxy, 1).await;
    assert_eq!(healthy(&proxy), [false, true], "one success is not enough");
    rounds(&proxy, 1).await;
    send(&proxy, 10).await;
    assert_eq!((one.taken(), other.taken()), (5, 5));
}

#[tokio::test]
async fn if_none_is_healthy_all_get_requests() {
    let (one, other) = (Service::start(OK).await, Service::start(OK).await);
    let proxy = checked([one.upstream.url(), other.upstream.url()], check());
    one.set_sick(true);
    other.set_sick(true);
    rounds(&proxy, 3).await;
    assert_eq!(healthy(&proxy), [false, false]);
    send(&proxy, 10).await;
    assert_eq!((one.taken(), other.taken()), (5, 5));
    assert_eq!(proxy.closed_for(), None);

    // The same with one alone.
    let alone = checked([one.upstream.url()], check());
    rounds(&alone, 3).await;
    assert_eq!(healthy(&alone), [false]);
    send(&alone, 2).await;
    assert_eq!(one.taken(), 2);
}

#[tokio::test]
async fn what_was_sent_to_an_address_that_becomes_unhealthy_goes_on() {
    let (reached, mut seen) = mpsc::channel(1);
    let upstream = Upstream::start(move |mut stream| {
        let reached = reached.clone();
        async move {
            let (head, _) = read_head(&mut stream).await.unwrap();
            match head.starts_with("get /healthz ") {
                true => say(&mut stream, SICK).await,
                false => reached.send(stream).await.unwrap(),
            }
        }
    })
    .await;
    let other = Service::start(OK).await;
    let proxy = checked([upstream.url(), other.upstream.url()], check());
    let one = proxy.clone();
    let running = tokio::spawn(async move { send(&one, 1).await });
    let mut held = seen.recv().await.unwrap();
    rounds(&proxy, 3).await;
    assert_eq!(healthy(&proxy), [false, true]);
    say(&mut held, OK).await;
    running.await.unwrap();
}

#[tokio::test]
async fn every_way_to_fail_is_told() {
    let dead = Dead::new();
    let silent = Upstream::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let closing = Upstream::start(|mut stream| async move {
        read_head(&mut stream).await;
    })
    .await;
    let sick = Service::start(OK).await;
    sick.set_sick(true);
    let quick = HealthCheck { timeout: Duration::from_millis(200), ..check() };
    let addresses = [url(dead.address), silent.url(), closing.url(), sick.upstream.url()];
    let proxy = checked(addresses.clone(), quick);
    let results = proxy.check_health().await;
    let why = |address: &UpstreamAddress| {
        let result = results.iter().find(|result| result.upstream == *address);
        result.expect("a result for each address").failure
    };
    assert_eq!(why(&addresses[0]), Some("the upstream refused the connection"));
    assert_eq!(why(&addresses[1]), Some("it did not answer in time"));
    assert_eq!(why(&addresses[2]), Some("it closed the connection without an answer"));
    assert_eq!(why(&addresses[3]), Some("it answered with another status"));
    // What counts as a success is a setting.
    let lenient = HealthCheck { expected: vec![200..=200, 500..=599], ..check() };
    let proxy = checked([sick.upstream.url()], lenient);
    assert_eq!(proxy.check_health().await[0].failure, None);
}

#[tokio::test]
async fn a_check_says_who_asks_and_needs_no_connection_of_the_pool() {
    let (heads, mut seen) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |mut stream| {
        let heads = heads.clone();
        async move {
            let (head, _) = read_head(&mut stream).await.unwrap();
            heads.send(head.clone()).unwrap();
            if head.starts_with("get /v1/healthz?deep=1 ") {
                say(&mut stream, OK).await;
            } else {
                std::future::pending::<()>().await;
            }
        }
    })
    .await;
    let below = UpstreamAddress::parse(&format!("{}/v1", upstream.url())).unwrap();
    let mut settings = proxy_settings([below]);
    settings.max_connections = 1;
    settings.host = HostHeader::Name(HeaderValue::from_static("payments.internal"));
    settings.health = Some(HealthCheck::new("/healthz?deep=1".parse().unwrap()));
    let proxy = Proxy::new(settings).unwrap();
    let one = proxy.clone();
    let hanging = tokio::spawn(async move { send(&one, 1).await });
    assert!(seen.recv().await.unwrap().starts_with("get /v1/ "));
    let results = proxy.check_health().await;
    assert_eq!(results[0].failure, None, "the only connection of the pool is in use");
    let head = seen.recv().await.unwrap();
    assert!(head.contains("\r\nhost: payments.internal\r\n"), "{head}");
    assert!(head.contains("\r\nuser-agent: justonce\r\n"), "{head}");
    hanging.abort();
}

/// The breaker counts requests, the checks ask a page: neither overrules the other.
#[tokio::test]
async fn an_open_breaker_is_not_closed_by_a_health_page_nor_replaced_by_the_unhealthy() {
    let (failing, sick) = (Service::start("").await, Service::start(OK).await);
    let mut settings = proxy_settings([failing.upstream.url(), sick.upstream.url()]);
    settings.health = Some(check());
    settings.breaker.as_mut().unwrap().min_requests = 1;
    let proxy = Proxy::new(settings).unwrap();
    sick.set_sick(true);
    rounds(&proxy, 3).await;
    assert_eq!(healthy(&proxy), [true, false]);
    let request = || Request::get("/").header("host", "shop").body(Empty::<Bytes>::new()).unwrap();
    let failed = proxy.send(request()).await;
    assert_eq!(failed.extensions().get(), Some(&ProxyError::Failed));
    rounds(&proxy, 3).await;
    assert!(proxy.closed_for().is_some(), "nothing that is healthy takes requests");
    let refused = proxy.send(request()).await;
    assert_eq!(refused.extensions().get(), Some(&ProxyError::NotReached));
    assert_eq!((failing.taken(), sick.taken()), (1, 0));
}
