//! The rules as properties: whatever happened before, these hold.

use std::collections::BTreeSet;
use std::time::Duration;

use justonce_core::{
    Action, Answer, Change, Entry, Existing, Failed, Fence, Fingerprint, Lost, Scope, State,
    StateName, SweepDone, Token, state_at, transition,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::draw::settings::cases;
use crate::draw::steps::{Drawn, RETENTION, Replay, What, begin, drawn, history, policy};

fn asked() -> Fingerprint {
    Fingerprint::of(&Scope::global(), b"asked")
}

/// What the second of two equal steps answers at the same moment.
fn repeated(first: &Answer, removed: bool, is_begin: bool) -> Answer {
    match first {
        // The first has done it, so there is nothing left to do.
        Answer::Swept(_) => Answer::Swept(SweepDone::Kept),
        Answer::Held(unknown) if is_begin => Answer::Existing(Existing::Unknown(*unknown)),
        Answer::Held(_) => Answer::Applied,
        // The first has left nothing to write to: the key is free, or only a tombstone is there.
        Answer::Applied if removed => Answer::Lost(Lost::Gone),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn a_step_twice_at_the_same_moment_is_the_step_once(past in history(), next in drawn()) {
        let mut replay = Replay::of(&past);
        replay.pass(next.pause);
        let action = next.action(replay.entry());
        let existed = replay.stored.is_some();
        let first = replay.step(&action);
        let once = replay.entry().cloned();
        let removed = existed && once.as_ref().is_none_or(|entry| entry.record().is_none());
        let second = replay.step(&action);
        prop_assert_eq!(replay.entry(), once.as_ref());
        let is_begin = matches!(action, Action::Begin(_));
        prop_assert_eq!(second, repeated(&first, removed, is_begin));
    }

    #[test]
    fn the_token_of_a_claim_gets_the_same_claim_again(
        past in history(),
        rules in policy(),
        pause in 0_u64..10_000,
    ) {
        let mut replay = Replay::of(&past);
        let call = Action::Begin(Box::new(begin(rules, Token(99), asked())));
        if let Answer::Claimed(claimed) = replay.step(&call) {
            let once = replay.entry().cloned();
            replay.pass(pause);
            let Answer::Claimed(again) = replay.step(&call) else {
                return Err(TestCaseError::fail("the reply was lost, not the claim"));
            };
            prop_assert_eq!(replay.entry(), once.as_ref());
            prop_assert_eq!((again.fence, again.attempt), (claimed.fence, claimed.attempt));
            prop_assert_eq!(again.checkpoint, claimed.checkpoint);
            prop_assert_eq!(again.lease, claimed.lease - Duration::from_millis(pause));
        }
    }

    #[test]
    fn a_write_with_another_fence_changes_nothing(
        past in history(),
        next in drawn(),
        off in prop_oneof![-3_i64..0, 1_i64..3],
    ) {
        let mut replay = Replay::of(&past);
        replay.pass(next.pause);
        let action = Drawn { fence: off, ..next }.action(replay.entry());
        let current = replay.entry().map_or(Fence::NONE, Entry::fence);
        if action.fence().is_some_and(|fence| fence != current) {
            let decision = replay.decide(&action);
            prop_assert_eq!(&decision.change, &Change::Keep);
            let lost = matches!(decision.answer, Answer::Lost(Lost::Superseded | Lost::Gone));
            prop_assert!(lost, "{:?}", decision.answer);
        }
    }

    #[test]
    fn a_completed_outcome_never_changes_before_it_expires(
        past in history(),
        rules in policy(),
        after in prop::collection::vec(drawn(), 1..10),
    ) {
        let mut replay = Replay::of(&past);
        let call = Action::Begin(Box::new(begin(rules, Token(99), asked())));
        if let Answer::Claimed(claimed) = replay.step(&call) {
            let outcome = justonce_core::Outcome::bytes("the one outcome");
            replay.step(&Action::Complete(claimed.fence, outcome.clone()));
            let completed = replay.entry().cloned();
            let expires_at = replay.now.after(RETENTION);
            for next in &after {
                if matches!(next.what, What::Expire | What::Erase) {
                    // That is what they are for.
                    continue;
                }
                replay.take(next);
                if replay.now >= expires_at {
                    break;
                }
                prop_assert_eq!(replay.entry(), completed.as_ref(), "{:?}", next);
                let peeked = replay.step(&Action::Peek(asked()));
                // The record keeps the fingerprint of whoever claimed it first.
                let left = expires_at.since(replay.now);
                let replayed = Existing::Completed(justonce_core::Replay {
                    outcome: outcome.clone(),
                    left,
                });
                let mismatch = Answer::Existing(Existing::Mismatch);
                let same = peeked == Answer::Existing(replayed);
                prop_assert!(same || peeked == mismatch, "{:?}", peeked);
            }
        }
    }

    #[test]
    fn only_what_has_ended_is_given_up(past in history(), next in drawn(), erase in any::<bool>()) {
        let mut replay = Replay::of(&past);
        let what = if erase { What::Erase } else { What::Expire };
        let next = Drawn { what, ..next };
        replay.pass(next.pause);
        let state = replay.entry().map_or(StateName::Absent, |entry| state_at(entry, replay.now));
        let waits = replay.entry().and_then(Entry::record).is_some_and(|record| {
            matches!(record.state, State::Failed(Failed::AwaitingRetry(_)))
        });
        let action = next.action(replay.entry());
        let decision = replay.decide(&action);
        let over = erase && state == StateName::Tombstone;
        let ended = matches!(state, StateName::Completed | StateName::Failed) && !waits;
        let own = next.fence == 0 && (ended || over);
        prop_assert_eq!(decision.answer == Answer::Applied, own, "{:?}", decision);
        prop_assert_eq!(decision.change == Change::Keep, !own);
        prop_assert!(decision.durable || !own, "what is gone must not come back");
        let leaves = matches!(decision.change, Change::Put(Entry::Tombstone(_)));
        prop_assert!(!leaves || !erase, "an erase leaves nothing");
    }

    #[test]
    fn every_claim_has_a_fence_of_its_own_that_is_newer(past in history()) {
        let mut replay = Replay::new();
        let mut newest = Fence::NONE;
        for next in &past {
            let before = replay.entry().map(Entry::fence);
            if let Answer::Claimed(claimed) = replay.take(next) {
                prop_assert_eq!(replay.entry().map(Entry::fence), Some(claimed.fence));
                let the_same_call = before == Some(claimed.fence);
                prop_assert!(claimed.fence > newest || the_same_call);
                newest = claimed.fence;
            }
        }
    }

    #[test]
    fn fences_grow_while_the_record_lives_even_if_the_store_mints_none(past in history()) {
        let mut replay = Replay::new();
        for next in &past {
            replay.pass(next.pause);
            let action = next.action(replay.entry());
            let before = replay.entry().map(Entry::fence);
            let decision = transition(replay.entry(), &action, replay.now, Fence::NONE);
            let (stored, _) = decision.carry_out(replay.stored.take());
            replay.stored = stored;
            if let (Some(before), Some(Entry::Record(after))) = (before, replay.entry())
                && after.attempt > 1
            {
                prop_assert!(after.fence >= before);
            }
            let fence = replay.entry().map(Entry::fence);
            prop_assert_ne!(fence, Some(Fence::NONE), "no claim has the fence of nobody");
        }
    }

    #[test]
    fn a_sweep_does_what_time_has_done_already_and_only_once(
        past in history(),
        pause in 0_u64..400_000,
    ) {
        let mut replay = Replay::of(&past);
        replay.pass(pause);
        let now = replay.now;
        let name = |entry: Option<&Entry>| entry.map_or(StateName::Absent, |e| state_at(e, now));
        let before = name(replay.entry());
        replay.step(&Action::Sweep);
        prop_assert_eq!(name(replay.entry()), before, "nobody can tell the difference");
        let stored = replay.entry().map_or(StateName::Absent, Entry::state_name);
        prop_assert_eq!(stored, before, "and now it is stored");
        prop_assert_eq!(replay.step(&Action::Sweep), Answer::Swept(SweepDone::Kept));
    }

    #[test]
    fn a_sweep_never_removes_what_is_in_progress_or_unknown(past in history(), pause: u32) {
        let mut replay = Replay::of(&past);
        let kept = |entry: Option<&Entry>| matches!(
            entry.and_then(Entry::record).map(|record| &record.state),
            Some(State::InProgress(_) | State::Unknown(_))
        );
        let before = kept(replay.entry());
        replay.pass(u64::from(pause) * 1000);
        replay.step(&Action::Sweep);
        prop_assert_eq!(kept(replay.entry()), before);
    }

    #[test]
    fn a_peek_changes_nothing_and_says_what_a_begin_would(
        past in history(),
        rules in policy(),
        pause in 0_u64..200_000,
    ) {
        let mut replay = Replay::of(&past);
        replay.pass(pause);
        let decision = replay.decide(&Action::Peek(asked()));
        prop_assert_eq!(&decision.change, &Change::Keep);
        prop_assert_eq!(&decision.note, &None);
        // A token of its own: the same call again gets its claim, which no peek can know.
        let call = Action::Begin(Box::new(begin(rules, Token(99), asked())));
        let begun = replay.step(&call);
        match (decision.answer, begun) {
            (Answer::Claimable, Answer::Claimed(_)) => {}
            (Answer::Existing(peeked), Answer::Existing(begun)) => {
                prop_assert_eq!(peeked, begun);
            }
            (Answer::Existing(Existing::Unknown(peeked)), Answer::Held(begun)) => {
                prop_assert_eq!(peeked, begun);
            }
            (peeked, begun) => prop_assert!(false, "{:?} but {:?}", peeked, begun),
        }
    }

    #[test]
    fn the_timeline_is_bounded_and_begins_with_the_first_claim(past in history()) {
        let replay = Replay::of(&past);
        if let Some(stored) = &replay.stored {
            let notes = stored.timeline.notes();
            prop_assert!(notes.len() <= justonce_core::MAX_NOTES);
            if let Entry::Record(_) = stored.entry {
                let first = notes.first().map(|note| &note.kind);
                let claimed = matches!(first, Some(justonce_core::NoteKind::Claimed(_)));
                prop_assert!(claimed, "{:?}", first);
            }
        }
    }
}

/// A property of histories proves nothing about states that no history reaches.
#[test]
fn histories_reach_every_state() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..2000 {
        let past = history().new_tree(&mut runner).unwrap().current();
        let replay = Replay::of(&past);
        reached.insert(replay.entry().map_or(StateName::Absent, Entry::state_name));
    }
    assert_eq!(reached, BTreeSet::from(StateName::ALL));
}
