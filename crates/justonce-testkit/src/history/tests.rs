//! Histories that may be, and histories that must be refused.

use super::Guarantee::{AtLeastOnce, AtMostOnce};
use super::OffenceKind::{
    AfterReplay, Disorder, Forgotten, Invented, Surprise, Twice, TwoOutcomes, Unasked,
};
use super::{Figures, Guarantee, History, OffenceKind, Recorder, Reply, RequestId, judge};

/// What happens to the one operation of a story.
enum Act {
    /// A request with this number is sent.
    Ask(usize),
    /// The service does it.
    Do(&'static str),
    /// The request with this number is answered.
    Hear(usize, Reply),
}

use Act::{Ask, Do, Hear};

fn told(story: Vec<Act>) -> History {
    let mut history = History::default();
    for act in story {
        match act {
            Ask(number) => assert_eq!(history.asked("op"), RequestId(number)),
            Do(answer) => history.effect("op", answer),
            Hear(number, reply) => history.replied(RequestId(number), reply),
        }
    }
    history
}

fn offences(story: Vec<Act>, guarantee: Guarantee) -> Vec<OffenceKind> {
    let verdict = judge(&told(story), guarantee);
    assert_eq!(verdict.is_fine(), verdict.offences.is_empty());
    verdict.offences.into_iter().map(|offence| offence.kind).collect()
}

fn fine(name: &str, story: fn() -> Vec<Act>) {
    assert_eq!(offences(story(), AtMostOnce), [], "{name}, at most once");
    assert_eq!(offences(story(), AtLeastOnce), [], "{name}, at least once");
}

/// Refused under both guarantees for the same reason.
fn refused(name: &str, kinds: &[OffenceKind], story: fn() -> Vec<Act>) {
    assert_eq!(offences(story(), AtMostOnce), kinds, "{name}, at most once");
    assert_eq!(offences(story(), AtLeastOnce), kinds, "{name}, at least once");
}

#[test]
fn histories_that_may_be() {
    fine("nothing", Vec::new);
    fine("done once", || vec![Ask(0), Do("a"), Hear(0, Reply::done("a"))]);
    fine("done once, asked three times", || {
        vec![
            Ask(0),
            Ask(1),
            Do("a"),
            Hear(1, Reply::InFlight),
            Hear(0, Reply::done("a")),
            Ask(2),
            Hear(2, Reply::replay("a")),
        ]
    });
    fine("the reply was lost", || {
        vec![Ask(0), Do("a"), Hear(0, Reply::Lost), Ask(1), Hear(1, Reply::replay("a"))]
    });
    fine("never answered, and done", || vec![Ask(0), Do("a")]);
    fine("the store was away", || {
        vec![Ask(0), Hear(0, Reply::Unavailable), Ask(1), Do("a"), Hear(1, Reply::done("a"))]
    });
    fine("unknown, and done", || vec![Ask(0), Do("a"), Hear(0, Reply::Unknown)]);
    fine("unknown, and not done", || vec![Ask(0), Hear(0, Reply::Unknown)]);
    fine("unknown, until its owner comes back", || {
        vec![
            Ask(0),
            Do("a"),
            Ask(1),
            Hear(1, Reply::Unknown),
            Hear(0, Reply::done("a")),
            Ask(2),
            Hear(2, Reply::replay("a")),
        ]
    });
    fine("a duplicate that was sent before the replay arrived", || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::done("a")),
            Ask(1),
            Ask(2),
            Hear(1, Reply::replay("a")),
            Hear(2, Reply::Unavailable),
        ]
    });
    fine("acknowledged while the outcome was not yet stored", || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::done("a")),
            Ask(1),
            Hear(1, Reply::InFlight),
            Ask(2),
            Hear(2, Reply::replay("a")),
        ]
    });
}

#[test]
fn a_second_effect_is_refused_where_it_was_excluded() {
    let story = || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::Lost),
            Ask(1),
            Do("b"),
            Hear(1, Reply::done("b")),
            Ask(2),
            Hear(2, Reply::replay("b")),
        ]
    };
    assert_eq!(offences(story(), AtMostOnce), [Twice]);
    assert_eq!(offences(story(), AtLeastOnce), []);
    let unknown =
        || vec![Ask(0), Do("a"), Hear(0, Reply::Unknown), Ask(1), Do("b"), Hear(1, Reply::Lost)];
    assert_eq!(offences(unknown(), AtMostOnce), [Twice]);
    // Two attempts, each acknowledged: the stored outcome counts.
    let superseded = || {
        vec![
            Ask(0),
            Do("a"),
            Ask(1),
            Do("b"),
            Hear(1, Reply::done("b")),
            Hear(0, Reply::done("a")),
            Ask(2),
            Hear(2, Reply::replay("b")),
        ]
    };
    assert_eq!(offences(superseded(), AtMostOnce), [Twice, TwoOutcomes]);
    assert_eq!(offences(superseded(), AtLeastOnce), []);
}

#[test]
fn effects_that_nobody_asked_for_are_refused() {
    refused("nobody asked", &[Unasked], || vec![Do("a")]);
    refused("done before it was asked for", &[Unasked], || {
        vec![Do("a"), Ask(0), Hear(0, Reply::done("a"))]
    });
    refused("refused, and done all the same", &[Unasked], || {
        vec![Ask(0), Do("a"), Hear(0, Reply::Unavailable)]
    });
    refused("only told to wait, and done", &[Unasked], || {
        vec![Ask(0), Do("a"), Hear(0, Reply::InFlight)]
    });
}

#[test]
fn nothing_is_done_after_a_replay() {
    let story = || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::Lost),
            Ask(1),
            Hear(1, Reply::replay("a")),
            Ask(2),
            Do("b"),
            Hear(2, Reply::Lost),
        ]
    };
    assert_eq!(offences(story(), AtMostOnce), [Twice, AfterReplay]);
    assert_eq!(offences(story(), AtLeastOnce), [AfterReplay]);
}

#[test]
fn answers_that_the_service_did_not_give_are_refused() {
    refused("acknowledged, never done", &[Invented], || vec![Ask(0), Hear(0, Reply::done("a"))]);
    refused("replayed, never done", &[Invented], || vec![Ask(0), Hear(0, Reply::replay("a"))]);
    refused("acknowledged before it was done", &[Invented], || {
        vec![Ask(0), Ask(1), Hear(0, Reply::done("a")), Do("a"), Hear(1, Reply::Lost)]
    });
    refused("another answer", &[Invented], || vec![Ask(0), Do("a"), Hear(0, Reply::done("b"))]);
}

#[test]
fn two_outcomes_are_refused() {
    let story = || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::Lost),
            Ask(1),
            Do("b"),
            Ask(2),
            Hear(1, Reply::replay("a")),
            Hear(2, Reply::replay("b")),
        ]
    };
    assert_eq!(offences(story(), AtMostOnce), [Twice, TwoOutcomes]);
    assert_eq!(offences(story(), AtLeastOnce), [TwoOutcomes]);
}

#[test]
fn what_was_acknowledged_and_is_not_found_again_is_refused() {
    refused("unknown after the acknowledgement", &[Forgotten], || {
        vec![Ask(0), Do("a"), Hear(0, Reply::done("a")), Ask(1), Hear(1, Reply::Unknown)]
    });
    refused("running for ever after the acknowledgement", &[Forgotten], || {
        vec![Ask(0), Do("a"), Hear(0, Reply::done("a")), Ask(1), Hear(1, Reply::InFlight)]
    });
    refused("running after a replay", &[Forgotten], || {
        vec![
            Ask(0),
            Do("a"),
            Hear(0, Reply::Lost),
            Ask(1),
            Hear(1, Reply::replay("a")),
            Ask(2),
            Hear(2, Reply::InFlight),
            Ask(3),
            Hear(3, Reply::replay("a")),
        ]
    });
    // Executed again, because the store had forgotten it.
    let lost = || {
        vec![Ask(0), Do("a"), Hear(0, Reply::done("a")), Ask(1), Do("b"), Hear(1, Reply::done("b"))]
    };
    assert_eq!(offences(lost(), AtMostOnce), [Twice, TwoOutcomes, Forgotten]);
}

#[test]
fn surprises_and_disorder_are_refused() {
    refused("a surprise", &[Surprise], || vec![Ask(0), Hear(0, Reply::Surprise("500".into()))]);
    refused("a second reply", &[Disorder], || {
        vec![Ask(0), Hear(0, Reply::Unavailable), Hear(0, Reply::Unavailable)]
    });
    refused("a reply to nothing", &[Disorder], || vec![Hear(7, Reply::Lost)]);
}

#[test]
fn operations_are_judged_apart_and_counted() {
    let recorder = Recorder::default();
    let tally = recorder.tally();
    let ask = |name: &str, effects: &[&str], reply: Reply| {
        let request = recorder.asked(name);
        effects.iter().for_each(|answer| recorder.effect(name, answer));
        recorder.replied(request, reply);
    };
    ask("a", &["1"], Reply::done("1"));
    ask("a", &[], Reply::replay("1"));
    ask("b", &[], Reply::Unknown);
    ask("c", &[], Reply::Unavailable);
    ask("d", &["2"], Reply::Lost);
    ask("d", &["3"], Reply::done("3"));
    let verdict = judge(&recorder.history(), AtMostOnce);
    let accused: Vec<_> = verdict.offences.iter().map(|offence| &*offence.operation).collect();
    assert_eq!(accused, ["d"]);
    let expected = Figures {
        operations: 4,
        requests: 6,
        effects: 3,
        repeated: 1,
        acknowledged: 2,
        unknown: 1,
        open: 1,
    };
    assert_eq!(verdict.figures, expected);
    assert!(verdict.to_string().contains("d: Twice"), "{verdict}");
    let tally = *tally.borrow();
    assert_eq!((tally.asked, tally.effects, tally.acknowledged, tally.replayed), (6, 3, 3, 1));
    assert_eq!((tally.unknown, tally.unavailable, tally.lost, tally.in_flight), (1, 1, 1, 0));
    assert_eq!(recorder.history().events().len(), 15);
}
