//! The rules of sagas: what comes next, and what an event does to the log. Pure: no time, no
//! chance, no store.

use super::log::{Log, LoggedStep, Mark};

/// What a saga does next, by its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Execute these steps, beside each other.
    Run(Vec<usize>),
    /// Compensate these steps, beside each other.
    Undo(Vec<usize>),
    /// Nothing: it is over, or it is stuck.
    End(End),
}

/// Where a saga can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// All steps are done.
    Done,
    /// All that was done is undone.
    RolledBack,
    /// Something keeps failing that cannot be given up.
    Stuck,
    /// It failed too often, or cannot be saved: it is not driven on before a retry.
    Parked,
}

/// What became of a step or of its compensation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The step took effect.
    Done,
    /// The step was refused: it did not take effect, and never will.
    Refused(String),
    /// The step failed too often; it may have taken effect.
    GivenUp(String),
    /// The compensation took effect.
    Undone,
    /// The compensation failed too often.
    NotUndone(String),
    /// The step took effect, and its result cannot be saved.
    Unsaved(String),
}

/// What a saga does next.
///
/// Ahead, the first group that is not done is executed. Once a step was refused or given up, all
/// that was done is compensated, the last group first. A compensation that keeps failing does not
/// keep the others from being tried. Nothing of a parked saga is called.
#[must_use]
pub fn next(log: &Log) -> Next {
    if log.parked().is_some() {
        return Next::End(End::Parked);
    }
    let numbered = || log.steps().iter().enumerate();
    let stuck = numbered().any(|(_, step)| matches!(step.mark, Mark::StuckAhead | Mark::StuckBack));
    if !log.is_rolled_back() {
        let waits = |step: &LoggedStep| step.mark == Mark::Waiting;
        let group = numbered().filter(|(_, step)| waits(step)).map(|(_, step)| step.planned.group);
        return match group.min() {
            _ if stuck => Next::End(End::Stuck),
            None => Next::End(End::Done),
            Some(group) => Next::Run(members(log, group, waits)),
        };
    }
    let group = numbered().filter(|(_, step)| must_undo(step)).map(|(_, step)| step.planned.group);
    match group.max() {
        Some(group) => Next::Undo(members(log, group, must_undo)),
        None if stuck => Next::End(End::Stuck),
        None => Next::End(End::RolledBack),
    }
}

/// Whether a step took effect, or may have, and can be compensated.
fn must_undo(step: &LoggedStep) -> bool {
    step.planned.undo && matches!(step.mark, Mark::Done | Mark::Doubted)
}

fn members(log: &Log, group: usize, wanted: impl Fn(&LoggedStep) -> bool) -> Vec<usize> {
    let of_group = |step: &LoggedStep| step.planned.group == group && wanted(step);
    log.steps().iter().enumerate().filter(|(_, s)| of_group(s)).map(|(n, _)| n).collect()
}

impl Log {
    /// What an event does to the log.
    pub fn note(&mut self, step: usize, event: Event) {
        let undo = self.step(step).is_some_and(|step| step.planned.undo);
        match event {
            Event::Done => self.mark(step, Mark::Done, None),
            Event::Refused(why) => {
                self.mark(step, Mark::Refused, Some(why));
                self.fall(step);
            }
            // It may have taken effect, so it is compensated like those that did.
            Event::GivenUp(why) if undo => {
                self.mark(step, Mark::Doubted, Some(why));
                self.fall(step);
            }
            // It may have taken effect, and nothing could undo it: it must not be given up.
            Event::GivenUp(why) => self.mark(step, Mark::StuckAhead, Some(why)),
            Event::Undone => self.mark(step, Mark::Undone, None),
            Event::NotUndone(why) => self.mark(step, Mark::StuckBack, Some(why)),
            // Another call would get the same result again, without end.
            Event::Unsaved(why) => {
                self.mark(step, Mark::Unsaved, Some(why.clone()));
                self.park(why);
            }
        }
    }

    /// The saga is not driven on from here before a retry.
    pub fn park(&mut self, why: String) {
        self.set_parked(Some(why));
    }

    /// A retry of a saga, parked or not, under this attempt: drives are counted anew. A step whose
    /// result could not be saved is called again, by its key; if the saga is rolled back meanwhile,
    /// it is compensated.
    #[must_use]
    pub fn unparked(mut self, attempt: u32) -> Self {
        self.set_parked(None);
        self.set_progressed(attempt);
        let mark = if self.is_rolled_back() { Mark::Doubted } else { Mark::Waiting };
        for number in 0..self.steps().len() {
            if self.step(number).is_some_and(|step| step.mark == Mark::Unsaved) {
                self.mark(number, mark, None);
            }
        }
        self
    }

    /// How many drives in a row have failed, by the number of claims so far.
    #[must_use]
    pub const fn failed_drives(&self, attempts: u32) -> u32 {
        attempts.saturating_sub(self.progressed())
    }

    /// The next owner of a stuck saga tries again what keeps failing.
    #[must_use]
    pub fn retried(mut self) -> Self {
        for number in 0..self.steps().len() {
            match self.step(number).map(|step| step.mark) {
                Some(Mark::StuckAhead) => self.mark(number, Mark::Waiting, None),
                Some(Mark::StuckBack) => self.mark(number, Mark::Doubted, None),
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::PlannedStep;
    use super::*;

    /// Steps by name, group and whether they have a compensation.
    fn log(steps: &[(&str, usize, bool)]) -> Log {
        let plan: Vec<PlannedStep> = steps
            .iter()
            .map(|&(name, group, undo)| PlannedStep { name: name.to_owned(), group, undo })
            .collect();
        Log::new("order", &plan, &()).unwrap()
    }

    fn three() -> Log {
        log(&[("reserve", 0, true), ("charge", 1, true), ("ship", 2, true)])
    }

    #[test]
    fn steps_run_in_their_order() {
        let mut log = three();
        for step in 0..3 {
            assert_eq!(next(&log), Next::Run(vec![step]));
            log.note(step, Event::Done);
        }
        assert_eq!(next(&log), Next::End(End::Done));
    }

    #[test]
    fn a_refused_step_is_not_undone_and_the_others_are_in_reverse() {
        let mut log = three();
        log.note(0, Event::Done);
        log.note(1, Event::Done);
        log.note(2, Event::Refused("no".into()));
        assert_eq!(next(&log), Next::Undo(vec![1]));
        log.note(1, Event::Undone);
        assert_eq!(next(&log), Next::Undo(vec![0]));
        log.note(0, Event::Undone);
        assert_eq!(next(&log), Next::End(End::RolledBack));
    }

    #[test]
    fn a_step_that_was_given_up_is_undone_too() {
        let mut log = three();
        log.note(0, Event::Done);
        log.note(1, Event::GivenUp("no answer".into()));
        assert_eq!(next(&log), Next::Undo(vec![1]));
    }

    #[test]
    fn a_compensation_that_fails_holds_up_no_other_and_is_retried() {
        let mut log = three();
        log.note(0, Event::Done);
        log.note(1, Event::GivenUp("no answer".into()));
        log.note(1, Event::NotUndone("still none".into()));
        assert_eq!(next(&log), Next::Undo(vec![0]));
        log.note(0, Event::Undone);
        assert_eq!(next(&log), Next::End(End::Stuck));
        let mut log = log.retried();
        assert_eq!(next(&log), Next::Undo(vec![1]), "it is still rolled back");
        log.note(1, Event::Undone);
        assert_eq!(next(&log), Next::End(End::RolledBack));
    }

    #[test]
    fn a_step_without_compensation_is_never_given_up() {
        let mut log = log(&[("charge", 0, true), ("ship", 1, false)]);
        log.note(0, Event::Done);
        log.note(1, Event::GivenUp("no answer".into()));
        assert_eq!(next(&log), Next::End(End::Stuck));
        assert_eq!(next(&log.retried()), Next::Run(vec![1]));
    }

    #[test]
    fn a_parked_saga_waits_until_it_is_retried() {
        let mut log = three();
        log.note(0, Event::Done);
        log.note(1, Event::Unsaved("too large".into()));
        assert_eq!(next(&log), Next::End(End::Parked));
        assert_eq!(next(&log.clone().retried()), Next::End(End::Parked), "a claim is no retry");
        assert_eq!(log.failed_drives(7), 7);
        let log = log.unparked(7);
        assert_eq!(next(&log), Next::Run(vec![1]), "it is called again, by its key");
        assert_eq!(log.failed_drives(9), 2);
    }

    #[test]
    fn what_took_effect_unsaved_is_undone_if_the_saga_is_rolled_back() {
        let mut log = log(&[("a", 0, true), ("b", 0, true)]);
        log.note(0, Event::Refused("no".into()));
        log.note(1, Event::Unsaved("too large".into()));
        assert_eq!(next(&log), Next::End(End::Parked));
        assert_eq!(next(&log.unparked(2)), Next::Undo(vec![1]));
    }

    #[test]
    fn a_group_runs_and_is_undone_together() {
        let steps = [("a", 0, true), ("b", 1, true), ("c", 1, true), ("d", 2, true)];
        let mut log = log(&steps);
        log.note(0, Event::Done);
        assert_eq!(next(&log), Next::Run(vec![1, 2]));
        log.note(2, Event::Done);
        assert_eq!(next(&log), Next::Run(vec![1]));
        log.note(1, Event::Done);
        log.note(3, Event::Refused("no".into()));
        assert_eq!(next(&log), Next::Undo(vec![1, 2]));
    }

    #[test]
    fn a_changed_plan_is_refused_where_the_saga_has_been() {
        let begun = {
            let mut log = three();
            log.note(0, Event::Done);
            log
        };
        let plan = |steps: &[(&str, usize, bool)]| -> Vec<PlannedStep> {
            log(steps).steps().iter().map(|step| step.planned.clone()).collect()
        };
        for (steps, fits) in [
            (&[("reserve", 0, true), ("charge", 1, true), ("pack", 2, true)][..], true),
            (&[("reserve", 0, true), ("charge", 1, true)], true),
            (&[("reserve", 0, true), ("pay", 1, true), ("ship", 2, true)], false),
            (&[("charge", 0, true), ("reserve", 1, true), ("ship", 2, true)], false),
            (&[("reserve", 0, true), ("charge", 1, false), ("ship", 2, true)], false),
            (&[("reserve", 0, true), ("charge", 1, true), ("ship", 1, true)], false),
        ] {
            let read = begun.clone().under("order", &plan(steps));
            assert_eq!(read.is_ok(), fits, "{steps:?}");
            if let Err(error) = read {
                let said = error.to_string();
                assert!(said.contains("reserve, charge, ship"), "{said}");
            }
        }
        assert!(begun.under("another", &plan(&[("reserve", 0, true)])).is_err());
    }
}
