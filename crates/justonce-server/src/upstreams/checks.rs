//! The health checks of one upstream, in the background.

use std::convert::Infallible;
use std::time::Duration;

use justonce::worker::{Next, Worker};
use justonce::{Engine, Entropy};
use justonce_proxy::Proxy;
use metrics::{Counter, counter};

use crate::metrics::HEALTH_CHECKS;

/// Checks all addresses of an upstream again and again, until it is dropped.
pub(super) fn start(engine: &Engine, name: &str, proxy: &Proxy, interval: Duration) -> Worker {
    let counts = |result: &'static str| {
        let counter =
            counter!(HEALTH_CHECKS.name, "upstream" => name.to_owned(), "result" => result);
        counter.increment(0);
        counter
    };
    let (passed, failed) = (counts("passed"), counts("failed"));
    let proxy = proxy.clone();
    let round = move || {
        let (proxy, passed, failed) = (proxy.clone(), passed.clone(), failed.clone());
        async move {
            round(&proxy, &passed, &failed).await;
            Ok::<_, Infallible>(Next::Pause)
        }
    };
    let entropy = Entropy::from_system();
    let schedule = engine.schedule("health", interval).jitter(move || entropy.next_u32());
    Worker::start(schedule, round)
}

/// Checks all addresses once.
async fn round(proxy: &Proxy, passed: &Counter, failed: &Counter) {
    for result in proxy.check_health().await {
        let counter = if result.failure.is_none() { passed } else { failed };
        counter.increment(1);
    }
}
