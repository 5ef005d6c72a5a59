//! One record under the pure function: what a store is compared with.

use justonce_core::store::Stored;
use justonce_core::{
    Action, Answer, Begin, Change, Checkpoint, Decision, Entry, Failure, Fence, Fingerprint, Key,
    Outcome, Owner, RecordId, Resolution, Resolve, Resolver, Scope, StateName, Timestamp, Token,
    Why, state_at, transition,
};

use super::act::{Act, Call, How, Pick, Print, Say, Under};
use super::deviation::Deviation;
use super::setting::Setting;

/// How far a fence that was never given lies ahead.
const FAR_AHEAD: u64 = 1_000_000;

/// One record as the rules make it.
#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub(super) id: RecordId,
    scope: Scope,
    key: Key,
    policy: usize,
    points: [Checkpoint; 3],
    asked: Checkpoint,
    /// What must be stored.
    pub(super) stored: Option<Stored>,
    /// All fences that were given, in order.
    pub(super) fences: Vec<Fence>,
    token: u128,
    last: Option<Action>,
    /// What may be stored after a restart: the last state that had to be on disk and all that
    /// came after it.
    pub(super) durable: Vec<Option<Stored>>,
}

impl Oracle {
    /// An absent record under the policy of a number. Tokens grow from the given one.
    pub(super) fn new(
        scope: Scope,
        name: &str,
        policy: usize,
        token: u128,
    ) -> Result<Self, Deviation> {
        let key = Key::client(name)?;
        let point = |name: &str| Checkpoint::new(name, name.repeat(3));
        Ok(Self {
            id: RecordId::of(&scope, &key),
            scope,
            key,
            policy,
            points: [point("charged")?, point("shipped")?, Checkpoint::new("empty", "")?],
            asked: point("asked")?,
            stored: None,
            fences: Vec::new(),
            token,
            last: None,
            durable: vec![None],
        })
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        self.stored.as_ref().map(|stored| &stored.entry)
    }

    /// The number of its policy.
    pub(super) const fn policy(&self) -> usize {
        self.policy
    }

    /// The state at a moment.
    pub(super) fn state(&self, now: Timestamp) -> StateName {
        self.entry().map_or(StateName::Absent, |entry| state_at(entry, now))
    }

    /// The action that a script's act means here and now.
    pub(super) fn action(&mut self, act: Act, setting: &Setting) -> Action {
        let action = match act {
            Act::Again => self.last.clone().unwrap_or(Action::Sweep),
            Act::Begin(print, call, under) => self.begin(print, call, under, setting),
            Act::Peek(print) => Action::Peek(self.fingerprint(print)),
            Act::Complete(pick, say) => Action::Complete(self.fence(pick), outcome("done", say)),
            Act::Fail(pick, kind, say) => {
                let failure =
                    Failure { outcome: outcome("failed", say), kind, jitter: u32::MAX / 3 };
                Action::Fail(self.fence(pick), failure)
            }
            Act::Release(pick) => Action::Release(self.fence(pick)),
            Act::Renew(pick) => Action::Renew(self.fence(pick)),
            Act::Checkpoint(pick, say) => {
                let [first, second, empty] = &self.points;
                let point = match say {
                    Say::First => first,
                    Say::Second => second,
                    Say::Empty => empty,
                };
                Action::Checkpoint(self.fence(pick), point.clone())
            }
            Act::Abandon(pick, reason) => Action::Abandon(self.fence(pick), reason.into()),
            Act::Resolve(pick, how, say) => {
                Action::Resolve(self.fence(pick), Box::new(resolve(how, say)))
            }
            Act::Expire(pick) => Action::Expire(self.fence(pick)),
            Act::Erase(pick) => Action::Erase(self.fence(pick)),
            Act::Sweep => Action::Sweep,
        };
        self.last = Some(action.clone());
        action
    }

    fn begin(&mut self, print: Print, call: Call, under: Under, setting: &Setting) -> Action {
        if call == Call::New {
            self.token += 1;
        }
        Action::Begin(Box::new(Begin {
            scope: self.scope.clone(),
            key: self.key.clone(),
            fingerprint: self.fingerprint(print),
            policy: match under {
                Under::Own => setting.policy(self.policy),
                Under::Other => setting.other_policy(self.policy),
            },
            owner: Owner::new(if self.token.is_multiple_of(2) { "even" } else { "odd" }),
            token: Token(self.token),
            checkpoint: match under {
                Under::Own => None,
                Under::Other => Some(self.asked.clone()),
            },
        }))
    }

    fn fingerprint(&self, print: Print) -> Fingerprint {
        match print {
            Print::Same => Fingerprint::of(&self.scope, b"asked"),
            Print::Different => Fingerprint::of(&self.scope, b"asked for something else"),
            Print::OtherVersion => Fingerprint::from_parts(77, [7; 32]),
            Print::Unchecked => Fingerprint::UNCHECKED,
        }
    }

    fn fence(&self, pick: Pick) -> Fence {
        let mut newest = self.fences.iter().rev().copied();
        let current = newest.next().unwrap_or(Fence::NONE.next());
        match pick {
            Pick::Current => current,
            Pick::Older => newest.next().unwrap_or(Fence::NONE),
            Pick::NeverGiven => Fence::new(current.get().saturating_add(FAR_AHEAD)),
        }
    }

    /// What the rules decide, if `fresh` is the fence that a claim would get.
    pub(super) fn decide(&self, action: &Action, now: Timestamp, fresh: Fence) -> Decision {
        transition(self.entry(), action, now, fresh)
    }

    /// A fence that was never granted.
    pub(super) fn fresh(&self) -> Fence {
        self.newest_fence().next()
    }

    pub(super) fn newest_fence(&self) -> Fence {
        self.fences.iter().max().copied().unwrap_or(Fence::NONE)
    }

    /// Applies a decision, and returns the answer that the store must give.
    pub(super) fn carry_out(&mut self, decision: Decision) -> Answer {
        let durable = decision.durable;
        let changed = decision.change != Change::Keep || decision.note.is_some();
        let (after, answer) = decision.carry_out(self.stored.take());
        self.stored = after;
        if durable {
            self.durable.clear();
        }
        if durable || changed {
            self.durable.push(self.stored.clone());
        }
        if let Answer::Claimed(claimed) = &answer
            && self.fences.last() != Some(&claimed.fence)
        {
            self.fences.push(claimed.fence);
        }
        answer
    }

    /// Takes what a store holds for the truth, after it was found right.
    pub(super) fn adopt(&mut self, stored: Option<Stored>) {
        if let Some(last) = self.durable.last_mut() {
            last.clone_from(&stored);
        }
        self.stored = stored;
    }
}

fn outcome(what: &str, say: Say) -> Outcome {
    match say {
        Say::First => Outcome::bytes(format!("{what}: receipt 17")),
        Say::Second => Outcome::bytes(format!("{what}: receipt 18")),
        Say::Empty => Outcome::empty(),
    }
}

fn resolve(how: How, say: Say) -> Resolve {
    Resolve {
        resolution: match how {
            // The same contents as the owner's own, so that a repetition of it is met as well.
            How::Complete => Resolution::Complete(outcome("done", say)),
            How::Fail => Resolution::Fail(outcome("failed", say)),
            How::Release => Resolution::Release,
        },
        by: Resolver::operator("ada"),
        why: Why::new("the bank says so"),
    }
}
