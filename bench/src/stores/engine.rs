//! The engine on any store: first-time operations and duplicates.

use std::sync::Arc;

use anyhow::{Result, ensure};
use justonce::store::SharedStore;
use justonce::{Engine, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope};

use crate::load::{Candidate, candidate};

/// The outcome of one operation, in bytes: about what payment APIs answer.
pub(super) const OUTCOME_BYTES: usize = 200;
/// How many operations the duplicates are of.
const DUPLICATE_KEYS: u64 = 1000;

fn scope() -> Result<Scope> {
    Ok(Scope::builder().tenant("acme").operation("charge").build()?)
}

fn outcome() -> Outcome {
    Outcome::bytes(vec![b'x'; OUTCOME_BYTES])
}

/// First-time operations, each with a key of its own.
pub(super) fn first_time(store: SharedStore, callers: u64, rule: OnLapsed) -> Result<Candidate> {
    let engine = Engine::builder_shared(store).build();
    let (scope, outcome) = (scope()?, outcome());
    let policy = Arc::new(Policy::builder().on_lapsed(rule).build()?);
    Ok(candidate(callers, move |caller, number| {
        let (engine, scope) = (engine.clone(), scope.clone());
        let (policy, outcome) = (Arc::clone(&policy), outcome.clone());
        async move {
            let key = Key::client(format!("{rule:?}-{caller}-{number}"))?;
            let operation = Operation::without_fingerprint(scope, key).with_policy(policy);
            let ran = engine.run(&operation, async |_| Ok(outcome)).await?;
            ensure!(matches!(ran, Ran::Executed(_)), "it must execute, not {ran:?}");
            Ok(())
        }
    }))
}

/// Duplicates of operations that were executed before.
pub(super) async fn duplicates(store: SharedStore, callers: u64) -> Result<Candidate> {
    let engine = Engine::builder_shared(store).build();
    let scope = scope()?;
    let policy = Arc::new(Policy::builder().on_lapsed(OnLapsed::Rerun).build()?);
    let mut operations = Vec::new();
    for number in 0..DUPLICATE_KEYS {
        let key = Key::client(format!("known-{number}"))?;
        let operation =
            Operation::without_fingerprint(scope.clone(), key).with_policy(Arc::clone(&policy));
        engine.run(&operation, async |_| Ok(outcome())).await?;
        operations.push(operation);
    }
    let operations = Arc::new(operations);
    Ok(candidate(callers, move |caller, number| {
        let (engine, operations) = (engine.clone(), Arc::clone(&operations));
        async move {
            let at = (caller * 7 + number) % DUPLICATE_KEYS;
            let Some(operation) = usize::try_from(at).ok().and_then(|at| operations.get(at)) else {
                anyhow::bail!("there are {DUPLICATE_KEYS} operations");
            };
            let ran = engine.run(operation, async |_| Ok(Outcome::empty())).await?;
            ensure!(matches!(ran, Ran::Replayed(_)), "it must be replayed, not {ran:?}");
            Ok(())
        }
    }))
}
