//! A store with something of everything in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use justonce_core::engine::Context;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Answer, Engine, Entropy, Entry, Key, OnLapsed, Operation, Outcome, Owner, Policy, RecordId,
    Scope, State, StateName, Step, StoreErrorKind, Token,
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

/// The operations of a round, each with its outcome and its row, or with nothing if it is only
/// begun.
fn operations(round: u32) -> impl Iterator<Item = (Operation, Option<(Outcome, RowName)>)> {
    let bytes = if round == ROUNDS { LARGE_BYTES } else { 300 };
    (0..OPERATIONS).flat_map(move |number| {
        let entropy = Entropy::seeded((round * 1000 + number).into());
        let noise = (0..bytes / 8).flat_map(|_| entropy.next_u64().to_le_bytes()).collect();
        let done =
            [("small", b"done".to_vec()), ("large", noise)].map(|(size, body): (_, Vec<_>)| {
                let key = format!("{size}-{round}-{number}");
                let row = RowName::new("rooms", &key).unwrap();
                (operation(&key), Some((Outcome::bytes(body), row)))
            });
        done.into_iter().chain([(operation(&format!("held-{round}-{number}")), None)])
    })
}

impl Filled {
    /// Fills a store, and leaves it open.
    pub(crate) async fn new(directory: &Path) -> (Self, Arc<EmbeddedStore>) {
        for round in 0..ROUNDS {
            fill(&EmbeddedStore::open(directory).unwrap().into(), round).await;
        }
        let store = Arc::new(EmbeddedStore::open(directory).unwrap());
        fill(&store, ROUNDS).await;
        (Self::expected(), store)
    }

    /// What is in a store that was filled, here or in another process.
    pub(crate) fn expected() -> Self {
        let mut filled = Self::default();
        for (operation, done) in (0..=ROUNDS).flat_map(operations) {
            match done {
                None => filled.unsettled.push(operation.id()),
                Some((outcome, row)) => {
                    filled.outcomes.push((operation.id(), outcome));
                    filled.rows.push(row);
                }
            }
        }
        filled
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
        // A lease may lapse between the two lists.
        let mut found = BTreeSet::new();
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

async fn fill(store: &Arc<EmbeddedStore>, round: u32) {
    let engine = Engine::builder_shared(store.clone()).build();
    for (operation, done) in operations(round) {
        let Some((outcome, row)) = done else {
            let begin = Step::begin(&operation, Owner::new("a"), Token(1));
            assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
            continue;
        };
        let handler = async |context: Context| {
            let write = |rows: &mut RowWrites<'_>| {
                rows.put(row.clone(), "taken");
                Ok(outcome.clone())
            };
            store.outcome_with(&context, write).await
        };
        engine.run(&operation, handler).await.unwrap();
    }
}
