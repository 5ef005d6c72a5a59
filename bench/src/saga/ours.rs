//! The saga that is measured: three steps that do nothing but add a number.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use justonce::engine::Context;
use justonce::saga::{Call, Saga, SagaEnd, SagaRan, SagaStep, StepError};
use justonce::store::{Observed, Seen, SharedStore};
use justonce::{
    EmbeddedStore, Engine, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope, StateName,
};

use crate::load::{Candidate, candidate};

/// How many callers at once.
pub(super) const CALLERS: u64 = 16;
/// The steps.
const STEPS: [&str; 3] = ["reserve", "charge", "ship"];

/// What a record has besides what it is filled with.
const BARE_BYTES: usize = 200;

/// What the steps before have made.
type Made = Vec<u64>;

/// Whoever wants to see the record of a saga at the beginning of each step.
#[derive(Clone)]
struct Watcher {
    store: SharedStore,
    sizes: Arc<Mutex<Vec<usize>>>,
}

impl Watcher {
    async fn look(&self, state: StateName) -> Result<(), StepError> {
        let bytes = self.store.stats().await?.of(state).map_or(0, |stats| stats.bytes);
        let bytes = usize::try_from(bytes)?;
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        Ok(())
    }
}

fn saga(watcher: Option<&Watcher>) -> Result<Saga<Made>> {
    let mut saga = Saga::builder("order");
    for name in STEPS {
        let watcher = watcher.cloned();
        let step = move |call: Call<Made>| {
            let watcher = watcher.clone();
            async move {
                if let Some(watcher) = watcher {
                    watcher.look(StateName::InProgress).await?;
                }
                Ok(call.context().last().copied().unwrap_or_default() + 1)
            }
        };
        let save = |made: &mut Made, number| made.push(number);
        saga = saga.step(SagaStep::new(name, step).saves(save).undo(async |_| Ok(())));
    }
    Ok(saga.build()?)
}

async fn once(engine: &Engine, saga: &Saga<Made>, caller: u64, number: u64) -> Result<()> {
    let key = Key::client(format!("order-{caller}-{number}"))?;
    let operation: Operation =
        saga.operation(Scope::builder().tenant("acme"), key, &vec![number])?;
    let ran = saga.run(engine, &operation).await?;
    ensure!(matches!(ran, SagaRan::Ended(SagaEnd::Done(_))), "it must be done: {ran:?}");
    Ok(())
}

/// Sagas, each with a key of its own.
pub(super) fn sagas(store: SharedStore) -> Result<Candidate> {
    let (engine, saga) = (Engine::builder_shared(store).build(), saga(None)?);
    Ok(candidate(CALLERS, move |caller, number| {
        let (engine, saga) = (engine.clone(), saga.clone());
        async move { once(&engine, &saga, caller, number).await }
    }))
}

/// As many durable commits as a saga has, of about the same bytes, by claims alone: what the store
/// allows for it.
pub(super) fn bare_commits(store: SharedStore, sizes: Vec<usize>) -> Result<Candidate> {
    let engine = Engine::builder_shared(store).build();
    let policy = Arc::new(Policy::builder().on_lapsed(OnLapsed::Resume).build()?);
    let scope = Scope::builder().tenant("acme").operation("order").build()?;
    let sizes: Arc<[usize]> = sizes.into();
    Ok(candidate(CALLERS, move |caller, number| {
        let (engine, policy, scope) = (engine.clone(), Arc::clone(&policy), scope.clone());
        let sizes = Arc::clone(&sizes);
        async move {
            let key = Key::client(format!("bare-{caller}-{number}"))?;
            let operation = Operation::without_fingerprint(scope, key).with_policy(policy);
            let [_, between @ .., last] = &*sizes else {
                bail!("a saga has a first and a last commit");
            };
            let (between, last) = (between.to_vec(), filled(*last));
            let handler = async move |context: Context| {
                for bytes in between {
                    context.save("point", filled(bytes)).await?;
                }
                Ok(Outcome::bytes(last))
            };
            let ran = engine.run(&operation, handler).await?;
            ensure!(matches!(ran, Ran::Executed(_)), "it must execute: {ran:?}");
            Ok(())
        }
    }))
}

/// What fills a record up to a size.
fn filled(bytes: usize) -> Vec<u8> {
    vec![b'x'; bytes.saturating_sub(BARE_BYTES)]
}

/// How many steps one saga takes on its store; each is at most one durable commit.
pub(super) async fn commits(path: &Path) -> Result<u64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let store = Observed::new(EmbeddedStore::open(path)?, move |seen: Seen<'_>| {
        println!("  a saga: {} → {:?}", seen.call, seen.result);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    once(&Engine::new(store), &saga(None)?, 0, 0).await?;
    Ok(count.load(Ordering::Relaxed))
}

/// How many bytes the record of a saga has after each of its commits.
pub(super) async fn sizes(path: &Path) -> Result<Vec<usize>> {
    let store: SharedStore = Arc::new(EmbeddedStore::open(path)?);
    let watcher = Watcher { store: Arc::clone(&store), sizes: Arc::default() };
    let engine = Engine::builder_shared(store).build();
    once(&engine, &saga(Some(&watcher))?, 0, 0).await?;
    let looked = watcher.look(StateName::Completed).await;
    ensure!(looked.is_ok(), "the store does not say how large the record is: {looked:?}");
    Ok(watcher.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone())
}
