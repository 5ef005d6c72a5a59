//! The scripts that lead to each state, and the events that meet it there.

use justonce_core::{FailureKind, UnknownReason};

use super::act::{Act, Boundary, Call, How, Line, Pick, Print, Say, Under};

use Act::{
    Abandon, Begin, Checkpoint, Complete, Erase, Expire, Fail, Peek, Release, Renew, Resolve, Sweep,
};
use Boundary::{BackOffEnd, LeaseEnd, RetentionEnd, TombstoneEnd};
use FailureKind::{Passing, Permanent};
use Pick::Current;
use Say::{Empty, First, Second};

/// A way to a state. Where it ends depends on the policy: a failure that is to be replayed ends
/// in another state than one that is to be retried.
#[derive(Debug)]
pub(super) struct Prelude {
    pub(super) name: &'static str,
    pub(super) lines: Vec<Line>,
}

const BEGIN: Act = Begin(Print::Same, Call::New, Under::Own);
const SAVE: Act = Checkpoint(Current, First);
const FAIL: Act = Fail(Current, Passing, First);

/// All ways.
pub(super) fn preludes() -> Vec<Prelude> {
    let mut all = vec![prelude("absent", [])];
    all.extend(claims());
    all.extend(ends());
    all.extend(lapses());
    all.extend(after_ends());
    all
}

/// Running claims.
fn claims() -> Vec<Prelude> {
    let begin = |print| Line::now(Begin(print, Call::New, Under::Own));
    let renew = Line::before(LeaseEnd, Renew(Current));
    vec![
        prelude("claimed", [begin(Print::Same)]),
        prelude("claimed unchecked", [begin(Print::Unchecked)]),
        prelude("claimed by another version", [begin(Print::OtherVersion)]),
        prelude("checkpointed", [Line::now(BEGIN), Line::now(SAVE)]),
        prelude("renewed", [Line::now(BEGIN), renew]),
        prelude("capped", [Line::now(BEGIN), renew, renew]),
        prelude("abandoned", [Line::now(BEGIN), abandon()]),
        prelude("abandoned with a checkpoint", [Line::now(BEGIN), Line::now(SAVE), abandon()]),
    ]
}

const fn abandon() -> Line {
    Line::now(Abandon(Current, UnknownReason::Panicked))
}

/// What owners do to end.
fn ends() -> Vec<Prelude> {
    let retry = Line::at(BackOffEnd, BEGIN);
    let lines = |act| [Line::now(BEGIN), Line::now(act)];
    vec![
        prelude("completed", lines(Complete(Current, First))),
        prelude("released", lines(Release(Current))),
        prelude("failed for good", lines(Fail(Current, Permanent, First))),
        prelude("failed for now", lines(FAIL)),
        // What was released has no outcome either, but no back-off.
        prelude("failed for now without contents", lines(Fail(Current, Passing, Empty))),
        prelude("failed with a checkpoint", [Line::now(BEGIN), Line::now(SAVE), Line::now(FAIL)]),
        prelude("tried again", [Line::now(BEGIN), Line::now(FAIL), retry]),
        prelude("failed twice", [Line::now(BEGIN), Line::now(FAIL), retry, Line::now(FAIL)]),
    ]
}

/// Claims whose owner crashed.
fn lapses() -> Vec<Prelude> {
    let takeover = Line::at(LeaseEnd, BEGIN);
    let sweep = Line::at(LeaseEnd, Sweep);
    let resolve = |how| Line::now(Resolve(Current, how, First));
    vec![
        prelude("lapsed and begun", [Line::now(BEGIN), takeover]),
        prelude(
            "lapsed with a checkpoint and begun",
            [Line::now(BEGIN), Line::now(SAVE), takeover],
        ),
        prelude(
            "taken over under another policy",
            [
                Line::now(BEGIN),
                Line::now(SAVE),
                Line::at(LeaseEnd, Begin(Print::Same, Call::New, Under::Other)),
            ],
        ),
        prelude("lapsed twice and begun", [Line::now(BEGIN), takeover, takeover]),
        prelude(
            "lapsed, begun, completed",
            [Line::now(BEGIN), takeover, Line::now(Complete(Current, First))],
        ),
        prelude("lapsed and swept", [Line::now(BEGIN), sweep]),
        prelude(
            "lapsed, swept, resolved as completed",
            [Line::now(BEGIN), sweep, resolve(How::Complete)],
        ),
        prelude("lapsed, swept, resolved as failed", [Line::now(BEGIN), sweep, resolve(How::Fail)]),
        prelude(
            "lapsed, swept, resolved as released",
            [Line::now(BEGIN), sweep, resolve(How::Release)],
        ),
        prelude(
            "abandoned, resolved as released",
            [Line::now(BEGIN), abandon(), resolve(How::Release)],
        ),
        prelude(
            "lapsed, begun, released",
            [Line::now(BEGIN), takeover, Line::now(Release(Current))],
        ),
        prelude(
            "lapsed, swept, the owner came back",
            [Line::now(BEGIN), sweep, Line::now(Complete(Current, First))],
        ),
    ]
}

/// What remains after the retention.
fn after_ends() -> Vec<Prelude> {
    let done = Line::now(Complete(Current, First));
    let expire = Line::at(RetentionEnd, Sweep);
    vec![
        prelude("buried", [Line::now(BEGIN), done, expire]),
        prelude("buried failure", [Line::now(BEGIN), Line::now(FAIL), expire]),
        prelude("expired", [Line::now(BEGIN), done, Line::now(Expire(Current))]),
        prelude(
            "expired and begun",
            [Line::now(BEGIN), done, Line::now(Expire(Current)), Line::at(TombstoneEnd, BEGIN)],
        ),
        prelude(
            "begun after the retention",
            [Line::now(BEGIN), done, Line::at(RetentionEnd, BEGIN)],
        ),
        prelude(
            "begun after the tombstone",
            [Line::now(BEGIN), done, expire, Line::at(TombstoneEnd, BEGIN)],
        ),
    ]
}

fn prelude<const N: usize>(name: &'static str, lines: [Line; N]) -> Prelude {
    let lines = lines.to_vec();
    Prelude { name, lines }
}

/// All events: every action with every fence, fingerprint, token and content.
pub(super) fn events() -> Vec<Act> {
    let mut all = vec![Sweep, Begin(Print::Same, Call::New, Under::Other)];
    for print in [Print::Same, Print::Different, Print::OtherVersion, Print::Unchecked] {
        all.push(Peek(print));
        all.push(Begin(print, Call::New, Under::Own));
        all.push(Begin(print, Call::Earlier, Under::Own));
    }
    for pick in [Pick::Current, Pick::Older, Pick::NeverGiven] {
        all.extend([Release(pick), Renew(pick), Expire(pick), Erase(pick)]);
        for reason in [UnknownReason::Panicked, UnknownReason::Reported] {
            all.push(Abandon(pick, reason));
        }
        all.push(Resolve(pick, How::Release, First));
        for say in [First, Second] {
            all.extend([
                Complete(pick, say),
                Fail(pick, Passing, say),
                Fail(pick, Permanent, say),
                Checkpoint(pick, say),
                Resolve(pick, How::Complete, say),
                Resolve(pick, How::Fail, say),
            ]);
        }
    }
    all
}
