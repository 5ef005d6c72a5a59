//! What the model looks like at one moment.

use justonce_core::{Entry, Failed, Fence, InProgress, Outcome, Record, State, Timestamp, Token};

use crate::laws::Law;

/// How much may happen in a world: the space grows fast with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many workers there are at once; those that crashed start again.
    pub workers: usize,
    /// How many calls they make together.
    pub calls: u8,
    /// How many requests the network delays.
    pub delays: u8,
    /// How often the store crashes.
    pub outages: u8,
    /// How long it lasts.
    pub ticks: u32,
}

/// One moment: the store, its clock, the workers, what is under way, and the auditor's book.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// What the store keeps.
    pub entry: Option<Entry>,
    /// What it would find after a crash.
    pub disk: Disk,
    /// The store's clock.
    pub now: Timestamp,
    /// The workers, in the order of what they do: they have no names.
    pub workers: Vec<Phase>,
    /// Delayed requests that may still arrive; their answers are lost.
    pub late: Vec<Request>,
    /// How many more requests the network delays.
    pub delays_left: u8,
    /// How many more times the store crashes.
    pub outages_left: u8,
    /// How many calls were made; the number of the last token.
    pub calls: u8,
    /// The books of the auditor.
    pub book: Book,
}

/// What is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Disk {
    /// All that the store keeps.
    Same,
    /// This: a change that need not be durable is still in memory only.
    Behind(Option<Entry>),
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing: not started, or dead.
    Away,
    /// It has called begin and has no answer.
    Asking(Token),
    /// It holds a claim, or believes so.
    Holding(Held),
    /// It settles its claim, and has no answer yet.
    Saying(Fence, Verdict),
    /// Its call ended just now.
    Over(End),
}

/// A claim in the hands of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Held {
    /// Its fence.
    pub fence: Fence,
    /// What the handler has done.
    pub ran: Ran,
    /// The checkpoint that was handed over with it.
    pub given: Point,
    /// The last checkpoint that the worker knows to be stored: its own, or the one given.
    pub point: Point,
}

/// How far a handler had come, by its checkpoints. The first is saved before the effect and
/// the second after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// At the beginning.
    #[default]
    Start,
    /// All is ready, and nothing has taken effect.
    Ready,
    /// The effect has happened.
    Paid,
}

impl Point {
    /// The number of a point within a claim that was given another one.
    #[must_use]
    pub fn number_since(self, given: Self) -> u32 {
        (self as u32).saturating_sub(given as u32)
    }
}

/// What a handler has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ran {
    /// It has not run yet.
    NotYet,
    /// It ran, and certainly had no effect.
    InVain,
    /// It ran, and took effect now or, by the checkpoint, under an earlier claim.
    WithEffect,
}

/// How a worker ends its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It took effect.
    Complete,
    /// It failed, and may pass.
    FailForNow,
    /// It failed for good.
    FailForGood,
    /// Nothing happened.
    Release,
    /// It stops without knowing.
    Abandon,
}

/// How an unknown operation is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Truth {
    /// It took effect.
    Happened,
    /// It did not, and never will: it is a failure.
    Failed,
    /// It did not, and never will: the key is free.
    Nothing,
}

/// How a call ended, as far as the sights want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// Its own outcome is stored.
    Stored,
    /// It got the outcome of another.
    Replayed,
    /// Its write was refused.
    Lost,
    /// It came after the retention.
    Expired,
}

/// A request to the store, small enough to be kept under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// A begin.
    Begin(Token),
    /// How a worker settled.
    Say(Fence, Verdict),
    /// A renewal.
    Renew(Fence),
    /// A checkpoint: how far it came, and its number within the claim.
    Save(Fence, Point, u32),
    /// A resolution.
    Resolve(Fence, Truth),
}

/// What the auditor remembers, apart from what the store says: the promises are checked against
/// this, not against the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Book {
    /// The highest fence that was ever given.
    pub issued: Fence,
    /// The claim that was last promised to be honoured, and until when.
    pub promised: Option<(Fence, Timestamp)>,
    /// How often the operation took effect; counted up to 2.
    pub effects: u8,
    /// Under `hold`: the claim whose handler ran, unless somebody who knows has said since that it
    /// was in vain.
    pub open_run: Option<Fence>,
    /// How many attempts count: claims that were not given back.
    pub attempts: u32,
    /// The last checkpoint that must not be lost.
    pub point: Point,
    /// The end that must be replayed.
    pub ended: Option<Ended>,
    /// Whether the key serves a new operation, after the retention of one before.
    pub anew: bool,
    /// The laws that were broken.
    pub broken: Broken,
}

/// An end that must be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    /// The answer that every duplicate must get.
    pub outcome: Outcome,
    /// Until when, by the policy.
    pub until: Timestamp,
}

/// A set of laws that were broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(u32);

impl Broken {
    /// Adds a law unless it was kept.
    pub fn note(&mut self, law: Law, kept: bool) {
        if !kept {
            self.0 |= 1 << law as u32;
        }
    }

    /// Whether a law was broken.
    #[must_use]
    pub const fn has(self, law: Law) -> bool {
        self.0 & (1 << law as u32) != 0
    }
}

impl World {
    /// An empty store, before the first request.
    #[must_use]
    pub fn empty(bounds: &Bounds) -> Self {
        Self {
            entry: None,
            disk: Disk::Same,
            now: Timestamp::ZERO,
            workers: vec![Phase::Away; bounds.workers],
            late: Vec::new(),
            delays_left: bounds.delays,
            outages_left: bounds.outages,
            calls: 0,
            book: Book::default(),
        }
    }

    /// The state of the record, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        Some(&self.entry.as_ref()?.record()?.state)
    }

    /// The record that must be honoured: one whose retention is not over.
    #[must_use]
    pub fn living(&self) -> Option<&Record> {
        let record = self.entry.as_ref()?.record()?;
        let until = match &self.book.ended {
            Some(ended) => Some(ended.until),
            None => self.entry.as_ref()?.expires_at(),
        };
        until.is_none_or(|until| self.now < until).then_some(record)
    }

    /// The claim that the record knows, with its fence.
    #[must_use]
    pub fn claim(&self) -> Option<(Fence, &InProgress)> {
        match self.entry.as_ref()? {
            Entry::Record(Record { fence, state: State::InProgress(claim), .. }) => {
                Some((*fence, claim))
            }
            _ => None,
        }
    }

    /// Whether a worker may yet execute: it holds a claim and its handler has not run, or a
    /// repeated begin may tell it of a claim that it has without knowing.
    #[must_use]
    pub fn may_yet_execute(&self) -> bool {
        let granted = self.claim().map(|(_, claim)| claim.token);
        self.workers.iter().any(|phase| match phase {
            Phase::Holding(held) => held.ran == Ran::NotYet,
            Phase::Asking(token) => Some(*token) == granted,
            _ => false,
        })
    }
}

/// The end that an entry replays, if it has come to one.
pub(crate) fn end_of(entry: Option<&Entry>) -> Option<&Outcome> {
    match &entry?.record()?.state {
        State::Completed(settled) | State::Failed(Failed::Final(settled)) => Some(&settled.outcome),
        _ => None,
    }
}
