//! Late arrivals and conditions, on every store, from several processes, through crashes.

use std::sync::{Arc, Mutex};

use justonce_core::{Engine, Fingerprint, HandlerError, Key, Operation, Outcome, Scope};
use justonce_saga::{Conditional, Guard, GuardError, IfChanged, Written};
use tokio::sync::Notify;

use crate::ground::{Ground, on_every_store};

/// What was really written, in its order.
type Ledger = Arc<Mutex<Vec<u64>>>;

fn content(entity: &Operation, text: &str) -> Fingerprint {
    Fingerprint::builder(entity.scope()).part("content", text.as_bytes()).finish()
}

struct Stage {
    ground: Ground,
    guard: Guard,
    entity: Operation,
    ledger: Ledger,
}

impl Stage {
    fn new(ground: Ground) -> Self {
        let guard = Guard::new("set-stock").unwrap();
        let key = Key::client("article-7").unwrap();
        let entity = guard.entity(Scope::builder().tenant("acme"), key).unwrap();
        Self { ground, guard, entity, ledger: Ledger::default() }
    }

    /// A write by this engine, of a content of its own for each version.
    async fn write(&self, engine: &Engine, version: u64) -> Written {
        self.write_as(engine, version, &format!("stock {version}")).await
    }

    async fn write_as(&self, engine: &Engine, version: u64, text: &str) -> Written {
        let content = content(&self.entity, text);
        let ledger = Arc::clone(&self.ledger);
        let written = self.guard.write(engine, &self.entity, version, content, async |_| {
            ledger.lock().unwrap().push(version);
            Ok(Outcome::bytes(format!("written {version}")))
        });
        written.await.unwrap()
    }

    fn ledger(&self) -> Vec<u64> {
        self.ledger.lock().unwrap().clone()
    }
}

fn executed(version: u64) -> Written {
    Written::Executed(Outcome::bytes(format!("written {version}")))
}

async fn an_older_write_never_follows(ground: Ground) {
    let stage = Stage::new(ground);
    // Two engines, as two processes have them.
    let (one, other) = (stage.ground.engine(), stage.ground.engine());
    assert_eq!(stage.write(&one, 5).await, executed(5));
    assert_eq!(stage.write(&other, 4).await, Written::Late);
    assert_eq!(stage.write(&one, 0).await, Written::Late);
    let replayed = Written::Replayed(Outcome::bytes("written 5"));
    assert_eq!(stage.write(&other, 5).await, replayed);
    assert_eq!(stage.write_as(&other, 5, "another").await, Written::Conflict);
    assert_eq!(stage.write(&other, 6).await, executed(6));
    assert_eq!(stage.write(&one, 5).await, Written::Late);
    // What is kept has no end: also much later the old ones are late.
    stage.ground.much_later();
    assert_eq!(stage.write(&one, 5).await, Written::Late);
    assert_eq!(stage.write(&one, 7).await, executed(7));
    assert_eq!(stage.ledger(), [5, 6, 7]);
}

on_every_store!(an_older_write_never_follows:
    late_in_memory late_on_embedded late_on_redis late_on_postgres);

/// A write whose process dies after it took effect, before that is kept.
async fn dies(stage: &Stage, version: u64) {
    let engine = stage.ground.engine();
    let at_work = Arc::new(Notify::new());
    let (guard, entity) = (stage.guard.clone(), stage.entity.clone());
    let (ledger, signal) = (Arc::clone(&stage.ledger), Arc::clone(&at_work));
    let task = tokio::spawn(async move {
        let content = content(&entity, &format!("stock {version}"));
        let written = guard.write(&engine, &entity, version, content, async |_| {
            ledger.lock().unwrap().push(version);
            signal.notify_one();
            std::future::pending().await
        });
        written.await.map(drop)
    });
    at_work.notified().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    stage.ground.much_later();
}

async fn an_accepted_write_keeps_older_ones_out(ground: Ground) {
    let stage = Stage::new(ground);
    let engine = stage.ground.engine();
    assert_eq!(stage.write(&engine, 1).await, executed(1));
    for version in [3, 5] {
        dies(&stage, version).await;
        assert_eq!(stage.write(&engine, version - 1).await, Written::Late);
        assert_eq!(stage.write_as(&engine, version, "another").await, Written::Conflict);
    }
    // Its retry is executed again: nobody knows whether it took effect.
    assert_eq!(stage.write(&engine, 5).await, executed(5));
    assert_eq!(stage.ledger(), [1, 3, 5, 5]);
}

on_every_store!(an_accepted_write_keeps_older_ones_out:
    accepted_in_memory accepted_on_embedded accepted_on_redis accepted_on_postgres);

async fn many_writers(ground: Ground) {
    let stage = Arc::new(Stage::new(ground));
    let engines = [stage.ground.engine(), stage.ground.engine()];
    // The order is mixed up, but the same in every run.
    let versions = (0..40_u64).map(|n| (n * 17) % 40 + 1);
    let tasks: Vec<_> = versions
        .zip(engines.iter().cycle())
        .map(|(version, engine)| {
            let (stage, engine) = (Arc::clone(&stage), engine.clone());
            tokio::spawn(async move { (version, stage.write(&engine, version).await) })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        match task.await.unwrap() {
            (version, written) if written == executed(version) => count += 1,
            (_, Written::Late) => {}
            (version, other) => panic!("{version}: {other:?}"),
        }
    }
    let ledger = stage.ledger();
    assert!(ledger.is_sorted_by(|a, b| a < b), "{ledger:?}");
    assert_eq!((ledger.len(), ledger.last()), (count, Some(&40)));
}

on_every_store!(many_writers:
    many_in_memory many_on_embedded many_on_redis many_on_postgres);

#[tokio::test]
async fn a_failed_write_stays_accepted() {
    let stage = Stage::new(Ground::memory());
    let engine = stage.ground.engine();
    let new = content(&stage.entity, "stock 2");
    let failed = stage.guard.write(&engine, &stage.entity, 2, new, async |_| {
        Err(HandlerError::retryable("the warehouse is away"))
    });
    assert!(matches!(failed.await.unwrap(), Written::Failed(HandlerError::Retryable(_))));
    assert_eq!(stage.write(&engine, 1).await, Written::Late);
    assert_eq!(stage.write(&engine, 2).await, executed(2));
}

#[tokio::test]
async fn a_key_that_is_used_for_something_else_is_noticed() {
    let stage = Stage::new(Ground::memory());
    let engine = stage.ground.engine();
    let done =
        Operation::without_fingerprint(stage.entity.scope().clone(), stage.entity.key().clone());
    engine.run(&done, async |_| Ok(Outcome::empty())).await.unwrap();
    let new = content(&stage.entity, "stock 2");
    let refused =
        stage.guard.write(&engine, &stage.entity, 2, new, async |_| unreachable!("refused"));
    assert!(matches!(refused.await, Err(GuardError::Unreadable(_))));
}

async fn only_changes_are_executed(ground: Ground) {
    let sync = Conditional::new("publish").unwrap();
    let shop = sync.key(Scope::builder().tenant("acme"), Key::client("shop").unwrap()).unwrap();
    let engines = [ground.engine(), ground.engine()];
    let mut ran = Vec::new();
    for (prices, engine) in ["a", "a", "b", "b", "a", "a"].into_iter().zip(engines.iter().cycle()) {
        let conditions = content(&shop, prices);
        let one = sync.run(engine, &shop, conditions, async |_| Ok(Outcome::bytes(prices))).await;
        ran.push(one.unwrap());
    }
    let of = |prices: &'static str| {
        let outcome = Outcome::bytes(prices);
        [IfChanged::Executed(outcome.clone()), IfChanged::Unchanged(outcome)]
    };
    assert_eq!(ran, [of("a"), of("b"), of("a")].concat());
}

on_every_store!(only_changes_are_executed:
    changed_in_memory changed_on_embedded changed_on_redis changed_on_postgres);
