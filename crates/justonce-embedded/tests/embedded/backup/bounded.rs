//! What a restored store makes unknown lies in memory, and counts against its bounds.

use std::time::Duration;

use justonce_core::engine::Settlement;
use justonce_core::{
    Answer, Engine, Entropy, Key, ManualClock, OnLapsed, Operation, Outcome, Owner, Policy,
    Resolution, Resolve, Resolver, Scope, Step, StoreErrorKind, Timestamp, Token, Why,
};
use justonce_embedded::backup::{RestoreOptions, restore};
use justonce_embedded::{Bounds, EmbeddedStore};

const HOUR: Duration = Duration::from_secs(3600);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const PLACES: u64 = 5;

/// An operation of the lost time; its key says so, or the restore was told to hold it.
fn lost(seed: u64) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    let key = if seed.is_multiple_of(2) {
        Key::issued(START.after(HOUR / 2), &Entropy::seeded(seed))
    } else {
        Key::client(format!("order-{seed}")).unwrap()
    };
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

/// Whoever knows a date of the lost time can make keys of it, and as many as they like.
#[tokio::test]
async fn what_may_be_lost_takes_no_more_memory_than_its_bound() {
    let place = tempfile::tempdir().unwrap();
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let clock = ManualClock::starting_at(START);
    let store = EmbeddedStore::builder(path).clock(clock.clone()).open().unwrap();
    store.backup(backup).await.unwrap();
    drop(store);
    clock.advance(HOUR);
    let options = RestoreOptions::default().clock(clock.clone()).hold_undated(HOUR);
    restore(backup, to, &options, &mut |_| {}).unwrap();
    let bounds = Bounds { unsettled_records: PLACES, ..Bounds::default() };
    let builder = EmbeddedStore::builder(to).clock(clock.clone()).bounds(bounds);
    let engine = Engine::new(builder.open().unwrap());
    let begin = async |seed| {
        let step = Step::begin(&lost(seed), Owner::new("a"), Token(seed.into()));
        engine.store().apply(&step).await
    };
    let (mut held, mut refused) = (Vec::new(), 0);
    for seed in 0..4 * PLACES {
        match begin(seed).await {
            Ok(Answer::Held(unknown)) => held.push((seed, unknown.fence)),
            Err(error) if error.kind() == StoreErrorKind::Full => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    let used = engine.store().health().await.unwrap().bounds[0];
    assert_eq!((used.name, used.used, held.len()), ("unsettled_records", PLACES, 5));
    assert_eq!(refused, 3 * PLACES);
    // What was held is found, and a resolution makes room.
    let (seed, fence) = held[0];
    let again = begin(seed).await.unwrap();
    assert!(matches!(again, Answer::Existing(_)), "{again:?}");
    let complete = Resolve {
        resolution: Resolution::Complete(Outcome::bytes("paid")),
        by: Resolver::operator("ann"),
        why: Why::new("in the books"),
    };
    let settled = engine.resolve(lost(seed).id(), fence, complete).await.unwrap();
    assert_eq!(settled, Settlement::Stored);
    let next = begin(4 * PLACES).await.unwrap();
    assert!(matches!(next, Answer::Held(_)), "{next:?}");
}
