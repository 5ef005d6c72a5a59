//! A store with something of everything in it.

use std::path::Path;
use std::sync::Arc;

use justonce_core::engine::Context;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Answer, Engine, Entry, Key, OnLapsed, Operation, Outcome, Owner, Policy, RecordId, Scope,
    State, StateName, Step, StoreErrorKind, Token,
};
use justonce_embedded::{EmbeddedStore, RowName, RowWrites};

/// How often the store is opened before: each leaves its tables.
const ROUNDS: u32 = 5;
/// How many operations each round has of every kind.
const OPERATIONS: u32 = 8;
/// As much as makes the log begin a second file.
const LARGE_BYTES: usize = 600_000;

/// What was acknowledged.
#[derive(Default)]
pub(crate) struct Filled {
    outcomes: Vec<(RecordId, Outcome)>,
    unsettled: Vec<RecordId>,
    rows: Vec<RowName>,
}

fn operation(key: &str) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

impl Filled {
    /// Fills a store, and leaves it open.
    pub(crate) async fn new(directory: &Path) -> (Self, Arc<EmbeddedStore>) {
        let mut filled = Self::default();
        for round in 0..ROUNDS {
            filled.round(&EmbeddedStore::open(directory).unwrap().into(), round, 300).await;
        }
        let store = Arc::new(EmbeddedStore::open(directory).unwrap());
        filled.round(&store, ROUNDS, LARGE_BYTES).await;
        (filled, store)
    }

    async fn round(&mut self, store: &Arc<EmbeddedStore>, round: u32, bytes: usize) {
        let engine = Engine::builder_shared(store.clone()).build();
        for number in 0..OPERATIONS {
            let entropy = justonce_core::Entropy::seeded((round * 1000 + number).into());
            let noise: Vec<u8> =
                (0..bytes / 8).flat_map(|_| entropy.next_u64().to_le_bytes()).collect();
            for (size, body) in [("small", b"done".to_vec()), ("large", noise)] {
                let operation = operation(&format!("{size}-{round}-{number}"));
                let row = RowName::new("rooms", format!("{size}-{round}-{number}")).unwrap();
                let outcome = Outcome::bytes(body);
                let handler = async |context: Context| {
                    let write = |rows: &mut RowWrites<'_>| {
                        rows.put(row.clone(), "taken");
                        Ok(outcome.clone())
                    };
                    store.outcome_with(&context, write).await
                };
                engine.run(&operation, handler).await.unwrap();
                self.outcomes.push((operation.id(), outcome));
                self.rows.push(row);
            }
            let held = operation(&format!("held-{round}-{number}"));
            let begin = Step::begin(&held, Owner::new("a"), Token(1));
            assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
            self.unsettled.push(held.id());
        }
    }

    /// Compares a store with what was acknowledged.
    pub(crate) async fn is_all_in(&self, store: &EmbeddedStore, what: &str) {
        for (id, outcome) in &self.outcomes {
            match store.get(id).await {
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Damaged, "{what}: {error}"),
                Ok(None) => panic!("lost in silence: {what}"),
                Ok(Some(stored)) => {
                    let Entry::Record(record) = stored.entry else { panic!("{what}") };
                    let State::Completed(settled) = record.state else { panic!("{what}") };
                    assert!(settled.outcome == *outcome, "another outcome: {what}");
                }
            }
        }
        for row in &self.rows {
            let value = store.row(row).await.unwrap();
            assert_eq!(value.as_deref(), Some(&b"taken"[..]), "{row:?} lost: {what}");
        }
        let mut found = Vec::new();
        for state in [StateName::InProgress, StateName::Unknown] {
            let query = ListQuery { state: Some(state), limit: 1000, ..ListQuery::default() };
            found.extend(store.list(&query).await.unwrap().records.iter().map(|one| one.id));
        }
        for id in &self.unsettled {
            assert!(found.contains(id), "an unsettled operation is not listed: {what}");
        }
        assert_eq!(found.len(), self.unsettled.len(), "{what}");
    }
}
