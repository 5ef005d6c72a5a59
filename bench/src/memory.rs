//! The engine on the memory store, on one thread.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use justonce::memory::MemoryStore;
use justonce::{
    Engine, Key, ManualClock, OnLapsed, Operation, Outcome, Policy, Ran, Scope, Timestamp,
};

use crate::machine::now;
use crate::report::{Report, median};

const RUNS: usize = 5;
const OPERATIONS: usize = 100_000;

/// Begin and complete, and duplicates, in nanoseconds each.
pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (a, b) = runtime.block_on(one_run())?;
        first.push(per_call(a));
        again.push(per_call(b));
    }
    let (first, again) = (median(first), median(again));
    report.add(
        "engine on memory, one thread: begin + complete",
        format!("{:.2} µs", first / 1000.0),
        "under 3 µs",
        first < 3000.0,
    );
    report.add(
        "engine on memory, one thread: duplicate",
        format!("{:.2} µs", again / 1000.0),
        "under 1 µs",
        again < 1000.0,
    );
    Ok(())
}

fn per_call(time: Duration) -> f64 {
    time.as_nanos() as f64 / OPERATIONS as f64
}

async fn one_run() -> Result<(Duration, Duration)> {
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let engine = Engine::new(MemoryStore::new(clock));
    let scope = Scope::builder().tenant("acme").operation("charge").build()?;
    let policy = Arc::new(Policy::builder().on_lapsed(OnLapsed::Rerun).build()?);
    let outcome = Outcome::bytes(vec![b'x'; 500]);
    let keys: Vec<Key> =
        (0..OPERATIONS).map(|n| Key::client(format!("order-{n:012}"))).collect::<Result<_, _>>()?;
    let operation = |key: &Key| {
        Operation::without_fingerprint(scope.clone(), key.clone()).with_policy(Arc::clone(&policy))
    };
    let start = now();
    for key in &keys {
        let outcome = outcome.clone();
        let ran = engine.run(&operation(key), async |_| Ok(outcome)).await?;
        ensure!(matches!(ran, Ran::Executed(_)), "it must execute");
    }
    let first = start.elapsed();
    let start = now();
    for key in &keys {
        let ran = engine.run(&operation(key), async |_| Ok(Outcome::empty())).await?;
        ensure!(matches!(ran, Ran::Replayed(_)), "it must replay");
    }
    Ok((first, start.elapsed()))
}
