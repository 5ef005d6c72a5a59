//! Callers go on while a backup is made, and what they were told before is in it.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use justonce_core::store::Records;
use justonce_core::{Engine, Entropy, Key, OnLapsed, Operation, Outcome, Policy, Scope, StateName};
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{RestoreOptions, Unpacker, check, restore};

const CALLERS: u64 = 4;
const BACKUPS: usize = 6;
/// So many operations must end while a backup is on its way.
const MEANWHILE: usize = 50;

fn operation(number: u64) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    let key = Key::client(format!("order-{number}")).unwrap();
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

/// What the callers were told.
#[derive(Default)]
struct Told {
    next: AtomicU64,
    done: Mutex<BTreeSet<u64>>,
    stop: AtomicBool,
}

impl Told {
    fn count(&self) -> usize {
        self.done.lock().unwrap().len()
    }

    async fn call(self: Arc<Self>, engine: Engine) {
        while !self.stop.load(Ordering::SeqCst) {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let entropy = Entropy::seeded(number);
            let noise = (0..100).flat_map(|_| entropy.next_u64().to_le_bytes());
            let outcome = Outcome::bytes(noise.collect::<Vec<u8>>());
            engine.run(&operation(number), async |_| Ok(outcome)).await.unwrap();
            self.done.lock().unwrap().insert(number);
        }
    }
}

/// Takes the first bytes of a backup only after callers have gone on.
struct Slow<'a> {
    to: &'a mut Unpacker,
    told: &'a Told,
    until: Option<usize>,
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let until = self.until.get_or_insert_with(|| self.told.count() + MEANWHILE);
        while self.told.count() < *until {
            std::thread::yield_now();
        }
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_go_on_during_a_backup_that_has_all_they_were_told_before() {
    let place = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(place.path().join("store")).unwrap();
    let backups = store.backups();
    let engine = Engine::new(store);
    let told = Arc::new(Told::default());
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(Arc::clone(&told).call(engine.clone()))).collect();
    let mut expected = Vec::new();
    for number in 0..BACKUPS {
        let before = told.done.lock().unwrap().clone();
        let to = place.path().join(format!("backup-{number}"));
        let backup = backups.begin().await.unwrap();
        let (told, directory) = (Arc::clone(&told), to.clone());
        let sent = tokio::task::spawn_blocking(move || {
            let mut unpacker = Unpacker::new(&directory).unwrap();
            let mut slow = Slow { to: &mut unpacker, told: &told, until: None };
            backup.write_to(&mut slow, &mut |_| {}).unwrap();
            unpacker.finish().unwrap()
        });
        sent.await.unwrap();
        expected.push((to, before));
    }
    told.stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(expected.last().unwrap().1.len() >= MEANWHILE * (BACKUPS - 1));
    for (backup, before) in expected {
        let copy = backup.with_extension("restored");
        restore(&backup, &copy, &RestoreOptions::default(), &mut |_| {}).unwrap();
        let found = check(&copy, &mut |_| {}).unwrap();
        assert!(found.is_good(), "{found:?}");
        let store = EmbeddedStore::open(&copy).unwrap();
        for number in before {
            let stored = store.get(&operation(number).id()).await.unwrap();
            let state = stored.map(|stored| stored.entry.state_name());
            assert_eq!(state, Some(StateName::Completed), "operation {number}");
        }
    }
}
