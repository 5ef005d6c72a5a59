//! Whatever happens, stores with near caches in front answer as the rules say, to the millisecond.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{Cached, NearCache, Records, Stored};
use justonce_core::{
    Action, Answer, Clock, Entry, Fence, Key, ManualClock, RecordId, Scope, Step, Timestamp, Token,
    transition,
};
use proptest::prelude::*;

use crate::common::shared::Shared;
use crate::draw::settings::cases;
use crate::draw::steps::{Drawn, What, drawn};

/// Ages in milliseconds: none, shorter and longer than each duration of the drawn policies.
const AGES: [u64; 5] = [0, 3_000, 30_000, 99_000, 1_000_000];

/// Processes on one store, each with its own near cache, and beside them what the rules say.
struct Nodes {
    clock: ManualClock,
    store: Shared,
    nodes: Vec<Cached<Shared, NearCache>>,
    /// Which process holds the claim: nobody else writes with its fence.
    owner: usize,
    /// A token names one call of one process.
    tokens: HashMap<String, Token>,
    entry: Option<Entry>,
}

impl Nodes {
    fn new(count: usize, age: u64) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_millis(1_000_000));
        let store = Shared(Arc::new(MemoryStore::new(clock.clone())));
        let node = |_| {
            let age = Duration::from_millis(age);
            let near = NearCache::builder().age(age).clock(clock.clone()).build();
            Cached::new(store.clone(), near).clock(clock.clone())
        };
        let nodes = (0..count).map(node).collect();
        Self { clock, store, nodes, owner: 0, tokens: HashMap::new(), entry: None }
    }

    fn step(&mut self, drawn: &Drawn, node: usize) -> Step {
        let mut action = drawn.action(self.entry.as_ref());
        if let Action::Begin(begin) = &mut action {
            let What::Begin(..) = &drawn.what else { panic!("a begin is drawn as one") };
            let call = format!("{node} {:?}", drawn.what);
            let next = Token(self.tokens.len() as u128);
            begin.token = *self.tokens.entry(call).or_insert(next);
        }
        Step::new(RecordId::of(&Scope::global(), &Key::client("order-17").unwrap()), action)
    }

    /// Takes a step through one of the processes; what it answered, and what it should have.
    async fn take(&mut self, drawn: &Drawn, node: usize) -> (Answer, Answer) {
        self.clock.advance(Duration::from_millis(drawn.pause));
        let step = self.step(drawn, node % self.nodes.len());
        let node = match step.action.fence() {
            Some(_) => self.owner,
            None => node % self.nodes.len(),
        };
        let answer = self.nodes[node].apply(&step).await.unwrap();
        if matches!(step.action, Action::Expire(_) | Action::Erase(_)) {
            // Nobody tells other processes, and their age bounds what they still replay. Here they
            // are told.
            for other in &self.nodes {
                other.forget(&step.id).await;
            }
        }
        let fresh = match &answer {
            Answer::Claimed(claimed) => {
                self.owner = node;
                claimed.fence
            }
            _ => Fence::new(u64::MAX),
        };
        let decision = transition(self.entry.as_ref(), &step.action, self.clock.now(), fresh);
        let before = self.entry.take().map(|entry| Stored { entry, timeline: Default::default() });
        let (after, expected) = decision.carry_out(before);
        self.entry = after.map(|stored| stored.entry);
        let kept = self.store.get(&step.id).await.unwrap().map(|stored| stored.entry);
        assert_eq!(kept, self.entry, "the store itself");
        (answer, expected)
    }

    fn hits(&self) -> u64 {
        self.nodes.iter().map(|node| node.cache().stats().hits).sum()
    }
}

/// Steps that mostly follow at once: a cache of seconds is of no use to histories of hours.
fn history() -> impl Strategy<Value = Vec<(Drawn, usize)>> {
    let soon = (drawn(), 0..2_usize, prop::bool::weighted(0.7)).prop_map(|(drawn, node, soon)| {
        let pause = if soon { drawn.pause.min(1) } else { drawn.pause };
        (Drawn { pause, ..drawn }, node)
    });
    prop::collection::vec(soon, 1..40)
}

proptest! {
    #![proptest_config(cases(6000))]

    #[test]
    fn each_answer_is_the_one_of_the_rules(
        count in 1..3_usize,
        age in prop::sample::select(AGES.to_vec()),
        history in history(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut nodes = Nodes::new(count, age);
        for (drawn, node) in &history {
            let (answer, expected) = runtime.block_on(nodes.take(drawn, *node));
            prop_assert_eq!(answer, expected, "{:?}", drawn);
        }
    }
}

/// The property would hold of a cache that never answers, so that it does is shown apart.
#[test]
fn in_drawn_histories_the_caches_do_answer() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut hits = 0;
    for _ in 0..500 {
        let history = history().new_tree(&mut runner).unwrap().current();
        let mut nodes = Nodes::new(2, 30_000);
        for (drawn, node) in &history {
            runtime.block_on(nodes.take(drawn, *node));
        }
        hits += nodes.hits();
    }
    assert!(hits > 100, "{hits} hits in 500 histories");
}
