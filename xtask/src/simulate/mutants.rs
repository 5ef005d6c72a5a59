//! The mutants: the code with one defect. Each replaces a text that occurs once in its file; a text
//! that is not there any more is an error, so that no mutant is forgotten when the code changes.

use anyhow::{Result, bail};

/// The code with one defect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// What it does wrong.
    pub(super) what: &'static str,
    pub(super) file: &'static str,
    /// The text, which occurs once, and what is put in its place.
    pub(super) old: &'static str,
    pub(super) new: &'static str,
}

/// All mutants. The first six were defects once.
pub(super) const MUTANTS: [Mutant; 21] = [
    Mutant {
        name: "a2-removal-forgotten",
        what: "a record leaves the table before its removal has reached the storage engine",
        file: "crates/justonce-embedded/src/step.rs",
        old: "let keep = planned.row.is_some() || queued.is_some();",
        new: "let keep = planned.row.is_some();",
    },
    Mutant {
        name: "a4-result-taken-back",
        what: "a caller that leaves while a result is on its way takes it back",
        file: "crates/justonce-core/src/engine/held_claim.rs",
        old: "let Some(step) = self.pending.take() else {",
        new: "let Some(step) = self.pending.take().filter(|_| false) else {",
    },
    Mutant {
        name: "a5a-renewals-on-a-callers-runtime",
        what: "all renewals run on the runtime of the first begin",
        file: "crates/justonce-core/src/engine/background.rs",
        old: "match start() {",
        new: "match Handle::try_current().map(Host::Given).or_else(|_| start()) {",
    },
    Mutant {
        name: "a5b-renewal-not-repeated",
        what: "a renewal that hangs is not repeated",
        file: "crates/justonce-core/src/engine/renewal.rs",
        old: "            queue.due.insert((again, active.number), Arc::clone(active));\n",
        new: "",
    },
    Mutant {
        name: "a6-recovery-forgets-the-unsettled",
        what: "a row that names all names nothing older when recovery writes it",
        file: "crates/justonce-embedded/src/recover.rs",
        old: "|| log.unsettled.iter().copied().collect()",
        new: "Vec::new",
    },
    Mutant {
        name: "a7-late-begin-not-looked-for",
        what: "a try of a begin that is carried out late leaves a claim that nobody holds",
        file: "crates/justonce-core/src/engine/begin.rs",
        old: "let doubt = step.is_in_doubt().then_some(step);",
        new: "let doubt = step.is_in_doubt().then_some(step).filter(|_| false);",
    },
    Mutant {
        name: "erased-outcome-stays-near",
        what: "a near cache keeps an outcome that was erased or resolved through it",
        file: "crates/justonce-core/src/store/layers/cached/decorator.rs",
        old: "if !matches!(answer, Ok(Answer::Swept(SweepDone::Kept))) {",
        new: "if matches!(answer, Ok(Answer::Swept(SweepDone::Removed))) {",
    },
    Mutant {
        name: "retry-with-a-new-token",
        what: "a begin is repeated as if it were another",
        file: "crates/justonce-core/src/store/layers/retry.rs",
        old: "let result = self.inner.apply(step).await;",
        new: "let mut again = step.clone();
            if let crate::protocol::Action::Begin(begin) = &mut again.action {
                begin.token.0 ^= u128::from(self.entropy.next_u64());
            }
            let result = self.inner.apply(&again).await;",
    },
    Mutant {
        name: "lost-counts-as-stored",
        what: "an owner whose write was refused is told that it is stored",
        file: "crates/justonce-core/src/engine/held_claim.rs",
        old: "Answer::Lost(lost) => Ok(Settlement::Lost(lost)),",
        new: "Answer::Lost(_) => Ok(Settlement::Stored),",
    },
    Mutant {
        name: "lost-claim-not-noticed",
        what: "a handler whose claim was taken over goes on",
        file: "crates/justonce-core/src/engine/renewal.rs",
        old: "            active.lose();\n",
        new: "",
    },
    Mutant {
        name: "another-request-peeks",
        what: "a call without a place gets the outcome of another request",
        file: "crates/justonce-core/src/engine/begin.rs",
        old: "Action::Peek(operation.fingerprint())",
        new: "Action::Peek(crate::fingerprint::Fingerprint::UNCHECKED)",
    },
    Mutant {
        name: "lost-begin-not-given-back",
        what: "a begin whose reply was lost is not given back",
        file: "crates/justonce-core/src/engine/begin.rs",
        old: "OrphanedBegins::give_back(self.inner, step.clone());",
        new: "let _ = (self.inner, step);",
    },
    Mutant {
        name: "fences-begin-anew",
        what: "a store that is opened again gives fences that it gave before",
        file: "crates/justonce-embedded/src/recover.rs",
        old: "let next = log.row.fences_reserved.max(1);",
        new: "let next = log.row.fences_reserved.clamp(1, 1);",
    },
    Mutant {
        name: "answered-before-the-sync",
        what: "callers are told that a batch is on disk before it is",
        file: "crates/justonce-embedded/src/commit.rs",
        old: "        match self.sink.commit(&mut batch) {",
        new: "        ticket.complete(Ok(()));\n        match self.sink.commit(&mut batch) {",
    },
    Mutant {
        name: "recovery-panics",
        what: "a store whose log has more than its engine panics when it is opened",
        file: "crates/justonce-embedded/src/recover.rs",
        old: "    if !batches.is_empty() {\n",
        new: "    if !batches.is_empty() {\n        assert!(batches.is_empty());\n",
    },
    Mutant {
        name: "wake-up-lost",
        what: "who waits for the end of a claim is not woken",
        file: "crates/justonce-core/src/store/waiters.rs",
        old: "        self.notify.notify_waiters();\n",
        new: "",
    },
    Mutant {
        name: "attempts-without-end",
        what: "an operation is tried again however often it was",
        file: "crates/justonce-core/src/policy.rs",
        old: "self.max_attempts.is_some_and(|max| attempt >= max.get())",
        new: "self.max_attempts.is_some_and(|max| attempt > u32::MAX - max.get())",
    },
    Mutant {
        name: "back-off-skipped",
        what: "what failed is tried again at once",
        file: "crates/justonce-core/src/protocol/transition.rs",
        old: "State::Failed(Failed::AwaitingRetry(waiting)) if now >= waiting.retry_at => {",
        new: "State::Failed(Failed::AwaitingRetry(waiting)) => {",
    },
    Mutant {
        name: "retention-without-end",
        what: "an outcome is replayed for ever",
        file: "crates/justonce-core/src/protocol/view.rs",
        old: "(now >= ends).then_some((ends, after))",
        new: "(now >= ends).then_some((ends, after)).filter(|_| false)",
    },
    Mutant {
        name: "unknown-has-a-retention",
        what: "an operation of which its handler said that it is not known is forgotten in time",
        file: "crates/justonce-core/src/protocol/view.rs",
        old: "        State::InProgress(_) | State::Unknown(_) => return None,",
        new: "        State::Unknown(unknown) if unknown.reason == UnknownReason::Reported => {
            let ends = record.changed_at.after(unknown.policy.retention);
            (ends, unknown.policy.after_retention)
        }
        State::InProgress(_) | State::Unknown(_) => return None,",
    },
    Mutant {
        name: "checkpoint-lost-by-a-failure",
        what: "what is tried again after a failure begins without its checkpoint",
        file: "crates/justonce-core/src/protocol/transition.rs",
        old: "        checkpoint: checkpoint_of(&record.state),\n",
        new: "        checkpoint: checkpoint_of(&record.state).filter(|_| false),\n",
    },
];

impl Mutant {
    /// The file with the defect.
    ///
    /// # Errors
    ///
    /// If the text that it replaces is not there exactly once.
    pub(super) fn of(&self, original: &str) -> Result<String> {
        let times = original.matches(self.old).count();
        if times != 1 {
            bail!(
                "the mutant `{}` is out of date: its text is {times} times in {}",
                self.name,
                self.file
            );
        }
        Ok(original.replace(self.old, self.new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::workspace_root;

    #[test]
    fn every_mutant_fits_the_code() {
        for mutant in MUTANTS {
            let original = std::fs::read_to_string(workspace_root().join(mutant.file)).unwrap();
            assert_ne!(mutant.of(&original).unwrap(), original, "{}", mutant.name);
        }
    }

    #[test]
    fn a_mutant_that_fits_nothing_is_an_error() {
        let error = MUTANTS[0].of("fn main() {}").unwrap_err().to_string();
        assert!(error.contains("out of date"), "{error}");
        assert!(MUTANTS[0].of(&MUTANTS[0].old.repeat(2)).is_err());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MUTANTS.len());
    }
}
