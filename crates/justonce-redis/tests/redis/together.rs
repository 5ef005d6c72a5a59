//! Callers who come at once share commands, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Action, Answer, Existing, Fence, Lost, NoteKind, OnLapsed, Operation, Outcome, Policy, Step,
    Timestamp, UnknownReason,
};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use tokio::time::timeout;

use crate::commands::{called, reset};
use crate::world::{LOST_AFTER, begin, claim, complete, is_busy, operation, plain, replayed, run};

const CALLERS: usize = 200;
/// How often a machine that is busy with something else may disturb.
const ROUNDS: usize = 5;

async fn opened() -> (RedisServer, RedisStore) {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    // The server learns the scripts, also those for many.
    let some: Vec<_> = (0..50).map(|n| plain(&format!("warm-up-{n}"))).collect();
    join_all(some.iter().map(|operation| run(&store, operation, "done"))).await;
    (server, store)
}

fn operations() -> Vec<Operation> {
    named("order")
}

fn named(name: &str) -> Vec<Operation> {
    (0..CALLERS).map(|n| plain(&format!("{name}-{n}"))).collect()
}

/// How many scripts were run since the last reset.
fn scripts_run(server: &RedisServer) -> u64 {
    called(server).get("evalsha").copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_operations_at_once_share_commands_and_each_has_its_own_fence_and_outcome() {
    let (server, store) = opened().await;
    let mut commands = Vec::new();
    // While the machine is busy with something else, requests that have waited for long go alone.
    for round in 0..ROUNDS {
        let operations = named(&format!("round-{round}"));
        commands.push(all_at_once(&server, &store, &operations).await);
        if commands.iter().any(|commands| *commands < CALLERS as u64 / 2) {
            return;
        }
    }
    panic!("{commands:?} commands for {CALLERS} operations");
}

/// Runs operations, and says how many scripts that took.
async fn all_at_once(server: &RedisServer, store: &RedisStore, operations: &[Operation]) -> u64 {
    reset(server);
    let claims = join_all(operations.iter().map(|operation| claim(store, operation))).await;
    let fences: BTreeSet<Fence> = claims.iter().map(|claimed| claimed.fence).collect();
    assert_eq!(fences.len(), CALLERS, "no fence is given twice");
    assert!(claims.iter().all(|claimed| claimed.attempt == 1));
    let ended =
        operations.iter().zip(&claims).enumerate().map(|(n, (operation, claimed))| async move {
            complete(store, operation, claimed.fence, &format!("done {n}")).await
        });
    assert!(join_all(ended).await.into_iter().all(|answer| answer.unwrap() == Answer::Applied));
    let commands = scripts_run(server);
    for (n, operation) in operations.iter().enumerate() {
        let outcome = Outcome::bytes(format!("done {n}"));
        assert_eq!(replayed(store, operation).await, Some(outcome));
        // Read as a whole, with its check sums.
        let stored = store.get(&operation.id()).await.unwrap().unwrap();
        let kinds: Vec<_> = stored.timeline.notes().iter().map(|note| &note.kind).collect();
        assert!(matches!(kinds[..], [NoteKind::Claimed(_), NoteKind::Completed]), "{kinds:?}");
    }
    let again = join_all(operations.iter().map(|operation| replayed(store, operation))).await;
    assert!(again.iter().all(Option::is_some), "duplicates at once are answered too");
    commands
}

/// As after a clock that was an hour ahead was set right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_when_the_clock_was_set_back() {
    let (server, store) = opened().await;
    let ahead = claim(&store, &plain("before")).await.fence.get() + 3_600_000_000;
    server.cli(&["SET", "{justonce:}f", &ahead.to_string()]).unwrap();
    let alone = claim(&store, &plain("alone")).await.fence.get();
    assert_eq!(alone, ahead + 1);
    let operations = operations();
    let claims = join_all(operations.iter().map(|operation| claim(&store, operation))).await;
    let fences: BTreeSet<u64> = claims.iter().map(|claimed| claimed.fence.get()).collect();
    assert_eq!(fences, (alone + 1..=alone + CALLERS as u64).collect());
    // One that is taken over gets the next one too.
    let given_up = operation("given-up", Duration::from_secs(30), OnLapsed::Rerun);
    let first = claim(&store, &given_up).await.fence;
    let abandon = Action::Abandon(first, UnknownReason::Reported.into());
    store.apply(&Step::new(given_up.id(), abandon)).await.unwrap();
    let second = claim(&store, &given_up).await;
    assert_eq!(second.attempt, 2);
    let last = alone + CALLERS as u64;
    assert_eq!((first.get(), second.fence.get()), (last + 1, last + 2));
}

/// As after a failover that lost the last fence, while the clock of the new primary is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_of_a_record_grow_when_the_last_fence_was_lost() {
    let (server, store) = opened().await;
    let ahead = claim(&store, &plain("before")).await.fence.get() + 3_600_000_000;
    server.cli(&["SET", "{justonce:}f", &ahead.to_string()]).unwrap();
    let given_up = operation("given-up", Duration::from_secs(30), OnLapsed::Rerun);
    let first = claim(&store, &given_up).await.fence;
    server.cli(&["DEL", "{justonce:}f"]).unwrap();
    let abandon = Action::Abandon(first, UnknownReason::Reported.into());
    store.apply(&Step::new(given_up.id(), abandon)).await.unwrap();
    let second = claim(&store, &given_up).await.fence;
    assert_eq!((first.get(), second.get()), (ahead + 1, ahead + 2));
    // From then on all are above it.
    let third = claim(&store, &plain("after")).await.fence;
    assert_eq!(third.get(), ahead + 3);
}

#[tokio::test]
async fn fences_of_what_is_gone_grow_when_the_last_fence_was_lost() {
    let (server, store) = opened().await;
    let released = plain("released");
    let first = claim(&store, &released).await.fence;
    store.apply(&Step::new(released.id(), Action::Release(first))).await.unwrap();
    server.cli(&["DEL", "{justonce:}f"]).unwrap();
    let second = claim(&store, &released).await.fence;
    assert!(second > first, "{second} after {first}");
}

/// Leases and retentions of one batch differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_together_is_due_at_moments_of_its_own() {
    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(1000);
    let (_server, store) = opened().await;
    let policy = |lease, retention| {
        let policy = Policy::builder().lease(lease).lease_cap(LONG).on_lapsed(OnLapsed::Hold);
        policy.retention(retention).build().unwrap()
    };
    // Batches begin with either.
    let time = |n: usize| if n.is_multiple_of(3) { SHORT } else { LONG };
    let short = CALLERS.div_ceil(3);
    let lapse = (0..CALLERS).map(|n| plain(&format!("l-{n}")).with_policy(policy(time(n), LONG)));
    let end = (0..CALLERS).map(|n| plain(&format!("e-{n}")).with_policy(policy(LONG, time(n))));
    let (lapse, end): (Vec<_>, Vec<_>) = (lapse.collect(), end.collect());
    join_all(lapse.iter().map(|operation| claim(&store, operation))).await;
    let claims = join_all(end.iter().map(|operation| claim(&store, operation))).await;
    let ends = end.iter().zip(claims);
    join_all(ends.map(|(operation, claimed)| complete(&store, operation, claimed.fence, "done")))
        .await;
    let sweeping = async {
        let (mut held, mut removed) = (BTreeSet::new(), 0);
        while held.len() < short || removed < short as u64 {
            let report = store.sweep(usize::MAX).await.unwrap();
            held.extend(report.held);
            removed += report.removed;
        }
        held
    };
    let held = timeout(LOST_AFTER, sweeping).await.expect("what is due is not swept");
    assert_eq!(held, lapse.iter().step_by(3).map(Operation::id).collect());
    for (n, operation) in end.iter().enumerate() {
        let is_kept = store.get(&operation.id()).await.unwrap().is_some();
        assert_eq!(is_kept, time(n) == LONG, "{n}");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_shortens_no_lease() {
    let server = RedisServer::start().unwrap();
    let seconds = Arc::new(AtomicU64::new(1_000_000));
    let shown = Arc::clone(&seconds);
    let clock = move || Timestamp::from_millis(shown.load(Ordering::SeqCst) * 1000);
    let store = RedisStore::builder(server.url()).clock(clock).open().await.unwrap();
    let operation = plain("renewed");
    let fence = claim(&store, &operation).await.fence;
    for (second, left) in [(1_000_010, 30), (1_000_005, 35), (1_000_020, 30)] {
        seconds.store(second, Ordering::SeqCst);
        let renewed = store.apply(&Step::new(operation.id(), Action::Renew(fence))).await;
        assert_eq!(renewed.unwrap(), Answer::Renewed(Duration::from_secs(left)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_begins_of_one_operation_at_once_one_has_the_claim() {
    let (_server, store) = opened().await;
    for round in 0..20 {
        let operation = plain(&format!("order-{round}"));
        let begins = (0..CALLERS).map(|_| begin(&store, &operation));
        let answers = join_all(begins).await.into_iter().map(Result::unwrap);
        let (claimed, others): (Vec<_>, Vec<_>) =
            answers.partition(|answer| matches!(answer, Answer::Claimed(_)));
        assert_eq!(claimed.len(), 1);
        assert!(others.iter().all(is_busy), "{others:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_completions_of_one_claim_at_once_one_is_kept() {
    let (_server, store) = opened().await;
    let operation = plain("order-17");
    let fence = claim(&store, &operation).await.fence;
    let outcomes: Vec<_> = (0..CALLERS).map(|n| format!("done {}", n % 5)).collect();
    let tries = outcomes.iter().map(|outcome| complete(&store, &operation, fence, outcome));
    let answers: Vec<_> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
    let kept = replayed(&store, &operation).await.unwrap();
    for (outcome, answer) in outcomes.iter().zip(answers) {
        let expected = match Outcome::bytes(outcome.clone()) == kept {
            true => Answer::Applied,
            false => Answer::Lost(Lost::Settled),
        };
        assert_eq!(answer, expected, "{outcome}");
    }
}

/// Some are new, some are running, some are done, some are the owner's no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_the_way_of_one_is_not_in_the_way_of_others() {
    let (server, store) = opened().await;
    let operations = operations();
    for (n, operation) in operations.iter().enumerate() {
        match n % 4 {
            0 => drop(run(&store, operation, "before").await),
            1 => drop(claim(&store, operation).await),
            2 => drop(server.cli(&["SET", &format!("unrelated-{n}"), "x"]).unwrap()),
            _ => {}
        }
    }
    let answers = join_all(operations.iter().map(|operation| begin(&store, operation))).await;
    let mut fences = Vec::new();
    for (n, answer) in answers.into_iter().map(Result::unwrap).enumerate() {
        match (n % 4, &answer) {
            (0, Answer::Existing(Existing::Completed(_))) => {}
            (1, busy) if is_busy(busy) => {}
            (2 | 3, Answer::Claimed(claimed)) => fences.push((n, claimed.fence)),
            _ => panic!("{n}: {answer:?}"),
        }
    }
    // Every second one with a fence that was never given.
    let ends = fences.iter().map(|(n, fence)| {
        let stale = n % 4 == 3;
        let fence = if stale { Fence::new(1) } else { *fence };
        let (store, operation) = (&store, &operations[*n]);
        async move { (stale, complete(store, operation, fence, "after").await.unwrap()) }
    });
    for (stale, answer) in join_all(ends).await {
        let expected = if stale { Answer::Lost(Lost::Superseded) } else { Answer::Applied };
        assert_eq!(answer, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_is_told_them_again() {
    let (server, store) = opened().await;
    server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    let operations = operations();
    join_all(operations.iter().map(|operation| run(&store, operation, "done"))).await;
    let again = join_all(operations.iter().map(|operation| replayed(&store, operation))).await;
    assert!(again.iter().all(Option::is_some));
}
