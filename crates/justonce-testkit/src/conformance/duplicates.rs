//! Chapter: through the engine, each operation is executed once and all callers get its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use justonce_core::store::SharedStore;
use justonce_core::{Engine, OnLapsed, Outcome, Ran};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::{operation, together};

/// How many operations.
const KEYS: usize = 50;
/// How many callers each has.
const CALLERS: usize = 16;

/// Fifty operations, each requested sixteen times at once by two engines.
///
/// # Errors
///
/// If a handler runs twice or not at all, or a caller gets another outcome than the others.
pub async fn duplicates<B: Backend>(backend: B) -> Verdict {
    let stage = Stage::new(backend)?;
    for rule in [OnLapsed::Rerun, OnLapsed::Hold] {
        let store: SharedStore = Arc::clone(&stage.store) as SharedStore;
        let engines = [
            Engine::builder_shared(Arc::clone(&store)).owner("first").build(),
            Engine::builder_shared(store).owner("second").build(),
        ];
        ask(&stage, &engines, rule).await?;
    }
    Ok(())
}

async fn ask<B: Backend>(stage: &Stage<B>, engines: &[Engine; 2], rule: OnLapsed) -> Verdict {
    let policy = stage.setting.on_lapsed(rule)?;
    let executed: Arc<Vec<AtomicUsize>> =
        Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let [first, second] = engines;
    let calls = together((0..KEYS * CALLERS).map(|number| {
        let (key, caller) = (number % KEYS, number / KEYS);
        let engine = if caller % 2 == 0 { first } else { second }.clone();
        let operation = operation(&format!("duplicate-{rule:?}-{key}"), &policy);
        let executed = Arc::clone(&executed);
        async move {
            let handler = async |_| {
                if let Some(count) = executed.get(key) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                tokio::task::yield_now().await;
                Ok(Outcome::bytes(format!("key {key} by caller {caller}")))
            };
            let ran = engine.run(&operation?, handler).await;
            Ok::<_, Deviation>((key, ran?))
        }
    }));
    let calls = calls.await?;
    for (key, count) in executed.iter().enumerate() {
        let times = count.load(Ordering::Relaxed);
        ensure!(times == 1, "the handler of key {key} ran {times} times");
    }
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    for call in calls {
        let (key, ran) = call?;
        let (Ran::Executed(outcome) | Ran::Replayed(outcome)) = ran else {
            return Err(Deviation::new(format!("a duplicate ended with {ran:?}")));
        };
        let first = outcomes.entry(key).or_insert_with(|| outcome.clone());
        ensure_eq!(outcome, *first, "the outcomes of key {key}");
    }
    Ok(())
}
