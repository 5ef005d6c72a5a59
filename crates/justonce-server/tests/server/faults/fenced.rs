//! An owner that stood still, together with the store, for longer than its lease: what it says when
//! it comes back counts only where it was not taken over.

use std::time::Duration;

use justonce_testkit::history::{Guarantee, Reply};
use nix::sys::signal::Signal;
use tokio::task::JoinHandle;

use crate::faults::client::Heard;
use crate::faults::ledger::Held;
use crate::faults::stage::Stage;
use crate::faults::store::Store;

/// Longer than the lease below.
const PAUSE: Duration = Duration::from_millis(1500);
const LEASE: &str = "[defaults]\nlease = '1s'\n";
/// The gateway that owns the operation; the other one follows.
const OWNER: usize = 0;
const OTHER: usize = 1;

/// An owner that has done it, but stands still before it can say so; so did the store, until now.
async fn stopped_owner(store: &Store, stage: &Stage) -> (Held, JoinHandle<Heard>) {
    let held = stage.ledger.hold("k");
    let mut client = stage.client(OWNER);
    let owner = tokio::spawn(async move { client.ask("k", 0).await });
    stage.seen("the effect", |tally| tally.effects == 1).await;
    stage.signal(OWNER, Signal::SIGSTOP);
    store.pause();
    tokio::time::sleep(PAUSE).await; // tidy: allow-sleep: a lease lapses by real time
    store.resume();
    (held, owner)
}

fn answer(heard: &Heard) -> &str {
    match &heard.reply {
        Reply::Acknowledged { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

/// The takeover's outcome stands, also for the client of the old owner.
async fn rerun(store: Store) {
    let stage = Stage::new(&store.url(), 2, &format!("{LEASE}on_lapsed = 'rerun'\n")).await;
    let (held, owner) = stopped_owner(&store, &stage).await;
    let winner = stage.client(OTHER).ask("k", 20).await;
    assert_eq!(answer(&winner), "effect 1 of k");
    stage.signal(OWNER, Signal::SIGCONT);
    held.let_go();
    let late = owner.await.unwrap();
    assert_eq!(answer(&late), "effect 1 of k", "the old owner's outcome was refused");
    for gateway in [OWNER, OTHER] {
        let replay = stage.client(gateway).ask("k", 0).await;
        assert_eq!(replay.reply, Reply::replay("effect 1 of k"));
    }
    let figures = stage.verdict(Guarantee::AtLeastOnce).await.figures;
    assert_eq!((figures.operations, figures.effects), (1, 2));
}

/// There is no takeover: unknown, until the owner itself says what it did.
async fn hold(store: Store) {
    let stage = Stage::new(&store.url(), 2, LEASE).await;
    let (held, owner) = stopped_owner(&store, &stage).await;
    let other = stage.client(OTHER).ask("k", 20).await;
    assert_eq!(other.reply, Reply::Unknown);
    stage.signal(OWNER, Signal::SIGCONT);
    let still = stage.client(OWNER).ask("k", 0).await;
    assert_eq!(still.reply, Reply::Unknown, "a claim that was held does not come back to life");
    held.let_go();
    assert_eq!(answer(&owner.await.unwrap()), "effect 0 of k");
    for gateway in [OWNER, OTHER] {
        let replay = stage.client(gateway).ask("k", 0).await;
        assert_eq!(replay.reply, Reply::replay("effect 0 of k"));
    }
    let figures = stage.verdict(Guarantee::AtMostOnce).await.figures;
    assert_eq!((figures.operations, figures.effects), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_owner_on_redis_under_rerun() {
    rerun(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_owner_on_redis_under_hold() {
    hold(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_owner_on_postgres_under_rerun() {
    rerun(Store::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_owner_on_postgres_under_hold() {
    hold(Store::postgres()).await;
}
