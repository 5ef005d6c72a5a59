//! Logs and metrics: h06, h07 and h33.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::Response;
use justonce_core::{Key, StoreErrorKind};
use justonce_http::{Rule, UpstreamName};
use metrics::{
    Counter, Gauge, Histogram, Key as MetricKey, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::sync::mpsc::unbounded_channel;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::bodies;
use crate::support::upstream::Upstream;
use crate::support::world::{SECOND, World, call, pass, payment, request, send};

/// A log in memory.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn h06_logs_carry_a_hash_of_the_key_never_the_key() {
    let log = Log::default();
    let level = tracing::Level::TRACE;
    let writer = tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(level);
    let _logging = tracing::subscriber::set_default(writer.with_ansi(false).finish());
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let mut instances = Vec::new();
    send(&app, payment("sk-live-secret")).await;
    send(&app, payment("sk-live-secret")).await;
    for wrong in ["sk-live-secret,", "sk-live-secret\", \"b"] {
        instances.push(send(&app, payment(wrong)).await);
    }
    let asked = "/.well-known/idempotency/sk-live-secret";
    instances.push(send(&app, request("GET", asked, &[], "")).await);
    world.probe.fail_as("begin", StoreErrorKind::Unavailable);
    instances.push(send(&app, payment("sk-live-secret")).await);

    let log = log.text();
    assert!(!log.contains("sk-live-secret"), "{log}");
    let hash = format!("{:?}", Key::client("sk-live-secret").unwrap());
    // Executed, replayed, and refused because the store was away.
    assert_eq!(log.matches(&hash).count(), 3, "{log}");
    for problem in instances {
        let body = problem.json();
        let instance = body["instance"].as_str().unwrap().strip_prefix("urn:uuid:").unwrap();
        assert!(log.contains(instance), "h33: the log knows {instance}: {log}");
        assert!(!problem.text().contains("sk-live-secret"));
    }
}

#[tokio::test(start_paused = true)]
async fn h33_an_error_that_does_not_end_in_time_is_logged_with_its_status_and_upstream() {
    // One that is held back until it is whole, and one that is streamed.
    for length in [Some(10), None] {
        let log = Log::default();
        let writer = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
        let _logging = tracing::subscriber::set_default(writer.finish());
        let (feeds, _fed) = unbounded_channel();
        let upstream = Upstream::new(move |_| {
            let (feed, body) = bodies::fed(length);
            assert!(feeds.send(feed).is_ok());
            let mut response = Response::new(body);
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            response.extensions_mut().insert(UpstreamName("orders:80".into()));
            std::future::ready(response)
        });
        let world = World::new();
        let app = world.app_with(&upstream, Rule::default().handler_timeout(5 * SECOND));
        let _response = call(&app, payment("abc")).await;
        pass(6 * SECOND).await;
        let log = log.text();
        let line = log.lines().find(|line| line.contains("may have taken effect")).unwrap();
        for field in ["upstream=\"orders:80\"", " status=500 ", "status=500 phase=answered"] {
            assert!(line.contains(field), "{field}: {line}");
        }
    }
}

/// All counters, by name and labels.
#[derive(Default)]
pub(crate) struct Counters(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Counters {
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).map_or(0, |count| count.load(Ordering::SeqCst))
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &MetricKey, _: &Metadata<'_>) -> Counter {
        let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        let mut all = self.0.lock().unwrap();
        Counter::from_arc(all.entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &MetricKey, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &MetricKey, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn h07_unprotected_requests_are_counted_and_no_metric_has_a_key() {
    let counters = Counters::default();
    let (world, upstream) = (World::new(), Upstream::counting());
    let app =
        metrics::with_local_recorder(&counters, || world.app_with(&upstream, Rule::default()));
    for _ in 0..2 {
        send(&app, request("POST", "/a", &[], "")).await;
    }
    for key in ["secret", "secret", "secret", "a,b"] {
        send(&app, payment(key)).await;
    }
    let requests = |fate: &str, duplicate: &str| {
        counters.of(&format!("idempotency_requests_total default {fate} {duplicate}"))
    };
    assert_eq!(requests("unprotected", "false"), 2);
    assert_eq!(requests("executed", "false"), 1);
    assert_eq!(requests("replayed", "true"), 2);
    assert_eq!(requests("refused", "false"), 1);
    assert_eq!(counters.of("idempotency_replays_total default"), 2);
    let names = format!("{:?}", counters.0.lock().unwrap().keys());
    assert!(!names.contains("secret"), "{names}");
}
