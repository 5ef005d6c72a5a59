//! Histories: random steps at interesting moments, taken from nothing.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Stored;
use justonce_core::{
    Action, AfterRetention, Answer, BackOff, Begin, Checkpoint, Decision, Entry, Failure,
    FailureKind, Fence, Fingerprint, Key, OnFailure, OnLapsed, Outcome, Owner, Policy, Resolution,
    Resolve, Resolver, Scope, Timestamp, Token, UnknownReason, Why, transition,
};
use proptest::prelude::*;

pub(crate) const LEASE: Duration = Duration::from_secs(10);
const LEASE_CAP: Duration = Duration::from_secs(25);
pub(crate) const RETENTION: Duration = Duration::from_secs(100);
const REFUSE: Duration = Duration::from_secs(50);
const BACK_OFF: BackOff = BackOff { first: Duration::from_secs(4), max: Duration::from_secs(8) };

/// Pauses in milliseconds: nothing, a moment, and just before, at and after every duration.
const PAUSES: [u64; 14] =
    [0, 0, 0, 1, 2_000, 4_000, 9_999, 10_000, 10_001, 25_000, 50_000, 99_999, 100_000, 150_000];

/// One drawn step: what is done, and how long after the step before.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) what: What,
    pub(crate) pause: u64,
    /// Added to the fence of the record: a write with an old or a future fence is drawn too.
    pub(crate) fence: i64,
}

/// What is done, but for the fence.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Begin(Arc<Policy>, Token, Fingerprint),
    Peek(Fingerprint),
    Complete(Outcome),
    Fail(Failure),
    Release,
    Renew,
    Checkpoint(Checkpoint),
    Abandon(UnknownReason),
    Resolve(Resolution),
    Expire,
    Erase,
    Sweep,
}

/// Any policy of a small set in which every rule occurs.
pub(crate) fn policy() -> impl Strategy<Value = Arc<Policy>> {
    let on_lapsed = prop::sample::select(vec![OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold]);
    let on_failure = prop::sample::select(vec![
        OnFailure::Replay,
        OnFailure::Release,
        OnFailure::Retry(BACK_OFF),
    ]);
    let after = vec![AfterRetention::New, AfterRetention::Refuse(REFUSE)];
    let attempts = prop::sample::select(vec![None, NonZeroU32::new(1), NonZeroU32::new(3)]);
    (on_lapsed, on_failure, prop::sample::select(after), attempts).prop_map(
        |(on_lapsed, on_failure, after_retention, max_attempts)| {
            let policy = Policy::builder()
                .lease(LEASE)
                .lease_cap(LEASE_CAP)
                .retention(RETENTION)
                .on_lapsed(on_lapsed)
                .on_failure(on_failure)
                .after_retention(after_retention)
                .max_attempts(max_attempts);
            Arc::new(policy.build().expect("a valid policy"))
        },
    )
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    let scope = Scope::global();
    prop_oneof![
        6 => Just(Fingerprint::of(&scope, b"asked")),
        1 => Just(Fingerprint::of(&scope, b"something else")),
        1 => Just(Fingerprint::UNCHECKED),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec!["a", "b"]).prop_map(Outcome::bytes)
}

pub(crate) fn reason() -> impl Strategy<Value = UnknownReason> {
    prop::sample::select(vec![
        UnknownReason::Lapsed,
        UnknownReason::AttemptsExhausted,
        UnknownReason::TimedOut,
        UnknownReason::Panicked,
        UnknownReason::Dropped,
        UnknownReason::Reported,
    ])
}

fn failure() -> impl Strategy<Value = Failure> {
    let kind = prop::sample::select(vec![FailureKind::Passing, FailureKind::Permanent]);
    (outcome(), kind, any::<u32>()).prop_map(|(outcome, kind, jitter)| Failure {
        outcome,
        kind,
        jitter,
    })
}

fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![
        outcome().prop_map(Resolution::Complete),
        outcome().prop_map(Resolution::Fail),
        Just(Resolution::Release),
    ]
}

fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    prop::sample::select(vec!["one", "two"])
        .prop_map(|name| Checkpoint::new(name, "data").expect("a valid checkpoint"))
}

/// Any step.
pub(crate) fn drawn() -> impl Strategy<Value = Drawn> {
    let token = (0_u128..3).prop_map(Token);
    let what = prop_oneof![
        6 => (policy(), token, fingerprint()).prop_map(|(p, t, f)| What::Begin(p, t, f)),
        1 => fingerprint().prop_map(What::Peek),
        2 => outcome().prop_map(What::Complete),
        2 => failure().prop_map(What::Fail),
        1 => Just(What::Release),
        2 => Just(What::Renew),
        2 => checkpoint().prop_map(What::Checkpoint),
        2 => reason().prop_map(What::Abandon),
        2 => resolution().prop_map(What::Resolve),
        1 => Just(What::Expire),
        1 => Just(What::Erase),
        2 => Just(What::Sweep),
    ];
    let fence = prop_oneof![8 => Just(0_i64), 1 => Just(-1), 1 => Just(1)];
    (what, prop::sample::select(PAUSES.to_vec()), fence).prop_map(|(what, pause, fence)| Drawn {
        what,
        pause,
        fence,
    })
}

/// A history of up to 30 steps.
pub(crate) fn history() -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec(drawn(), 0..30)
}

impl Drawn {
    /// The action, with a fence as near to that of the record as was drawn.
    pub(crate) fn action(&self, entry: Option<&Entry>) -> Action {
        let current = entry.map_or(Fence::NONE, Entry::fence);
        let fence = Fence::new(current.get().saturating_add_signed(self.fence));
        match self.what.clone() {
            What::Begin(policy, token, fingerprint) => {
                Action::Begin(Box::new(begin(policy, token, fingerprint)))
            }
            What::Peek(fingerprint) => Action::Peek(fingerprint),
            What::Complete(outcome) => Action::Complete(fence, outcome),
            What::Fail(failure) => Action::Fail(fence, failure),
            What::Release => Action::Release(fence),
            What::Renew => Action::Renew(fence),
            What::Checkpoint(checkpoint) => Action::Checkpoint(fence, checkpoint),
            What::Abandon(reason) => Action::Abandon(fence, reason.into()),
            What::Resolve(resolution) => Action::Resolve(
                fence,
                Box::new(Resolve {
                    resolution,
                    by: Resolver::operator("ada"),
                    why: Why::new("asked the bank"),
                }),
            ),
            What::Expire => Action::Expire(fence),
            What::Erase => Action::Erase(fence),
            What::Sweep => Action::Sweep,
        }
    }
}

/// A call of begin for the one operation that histories are about.
pub(crate) fn begin(policy: Arc<Policy>, token: Token, fingerprint: Fingerprint) -> Begin {
    Begin {
        scope: Scope::global(),
        key: Key::client("order-17").expect("a valid key"),
        fingerprint,
        policy,
        owner: Owner::new("test"),
        token,
        checkpoint: None,
    }
}

/// What a store would keep, and its clock and fences.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) stored: Option<Stored>,
    pub(crate) now: Timestamp,
    fences: u64,
}

impl Replay {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self { stored: None, now: Timestamp::from_millis(1_000_000), fences: 0 }
    }

    /// A whole history.
    pub(crate) fn of(history: &[Drawn]) -> Self {
        let mut replay = Self::new();
        for drawn in history {
            replay.take(drawn);
        }
        replay
    }

    /// What is kept, without its timeline.
    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.stored.as_ref().map(|stored| &stored.entry)
    }

    /// Lets time pass and takes a drawn step.
    pub(crate) fn take(&mut self, drawn: &Drawn) -> Answer {
        self.pass(drawn.pause);
        let action = drawn.action(self.entry());
        self.step(&action)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
    }

    /// What the rules say to an action now.
    pub(crate) fn decide(&mut self, action: &Action) -> Decision {
        self.fences += 1;
        transition(self.entry(), action, self.now, Fence::new(self.fences))
    }

    /// Takes an action now.
    pub(crate) fn step(&mut self, action: &Action) -> Answer {
        let decision = self.decide(action);
        let (stored, answer) = decision.carry_out(self.stored.take());
        self.stored = stored;
        answer
    }
}
