//! One script on one record of a store, step by step beside the oracle.

use std::fmt::Write;

use justonce_core::store::{Records, Stored};
use justonce_core::{Action, Answer, Change, StateName, Step, Timestamp};

use super::act::{Line, When};
use super::backend::Backend;
use super::coverage::Coverage;
use super::deviation::Deviation;
use super::oracle::Oracle;
use super::runner::Stage;
use super::tolerance::{same_answer, same_stored};

/// One script on one record.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) oracle: Oracle,
    lines: Vec<Line>,
    next: usize,
    /// Where the store went another way; the script ends there.
    pub(super) deviation: Option<Deviation>,
    pub(super) coverage: Coverage,
}

impl Run {
    pub(super) fn new(name: String, oracle: Oracle, lines: Vec<Line>) -> Self {
        Self { name, oracle, lines, next: 0, deviation: None, coverage: Coverage::default() }
    }

    /// Goes on with more lines.
    pub(super) fn extend(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.extend(lines);
    }

    /// Whether no line waits for a moment.
    pub(super) fn is_immediate(&self) -> bool {
        self.lines.iter().all(|line| line.when == When::Now)
    }

    /// When the next line is due. Lines whose boundary does not exist under this policy are
    /// skipped: the script is then one for another state.
    pub(super) fn due<B: Backend>(
        &mut self,
        now: Timestamp,
        stage: &Stage<B>,
    ) -> Option<Timestamp> {
        if self.deviation.is_some() {
            return None;
        }
        while let Some(line) = self.lines.get(self.next) {
            let entry = self.oracle.entry();
            if let Some(moment) = line.when.moment(entry, now, &stage.setting) {
                return Some(moment);
            }
            self.next += 1;
        }
        None
    }

    /// Takes the line that is due and those that follow at the same moment.
    pub(super) async fn take_due<B: Backend>(&mut self, stage: &Stage<B>, moment: Timestamp) {
        loop {
            let Some(line) = self.lines.get(self.next).copied() else {
                return;
            };
            self.next += 1;
            if let Err(deviation) = self.take(stage, line, moment).await {
                self.deviation = Some(deviation);
                return;
            }
            let follows = self.lines.get(self.next).map(|line| line.when);
            if follows != Some(When::Now) {
                return;
            }
        }
    }

    async fn take<B: Backend>(
        &mut self,
        stage: &Stage<B>,
        line: Line,
        moment: Timestamp,
    ) -> Result<(), Deviation> {
        let action = self.oracle.action(line.act, &stage.setting);
        let now = stage.now(moment).await?;
        let before = self.oracle.state(now);
        let step = Step::new(self.oracle.id, action);
        let answer = match stage.store.apply(&step).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.told(line, now, &format!("it failed: {error}"))),
        };
        let expected = self.expected(&step.action, &answer, now);
        let expected = expected.map_err(|what| self.told(line, now, &what))?;
        let slack = stage.setting.slack;
        if !same_answer(&answer, &expected, slack) {
            let what = format!("  answered: {answer:?}\n  expected: {expected:?}");
            return Err(self.told(line, now, &what));
        }
        let seen = stage.store.get(&self.oracle.id).await?;
        if !same_stored(seen.as_ref(), self.oracle.stored.as_ref(), slack) {
            let what = difference(seen.as_ref(), self.oracle.stored.as_ref());
            return Err(self.told(line, now, &what));
        }
        if !slack.is_zero() {
            self.oracle.adopt(seen);
        }
        self.coverage.count(before, &step.action, &answer);
        Ok(())
    }

    /// The decision of the rules on an action, given the fence that the store chose.
    fn expected(
        &mut self,
        action: &Action,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<Answer, String> {
        let fresh = match answer {
            Answer::Claimed(claimed) => claimed.fence,
            _ => self.oracle.fresh(),
        };
        let newest = self.oracle.newest_fence();
        let decision = self.oracle.decide(action, now, fresh);
        let is_claim =
            matches!((&decision.answer, &decision.change), (Answer::Claimed(_), Change::Put(_)));
        if is_claim && fresh <= newest {
            return Err(format!("fence {fresh} is not above {newest}, given before"));
        }
        Ok(self.oracle.carry_out(decision))
    }

    /// A deviation with all that is needed to find its cause.
    fn told(&self, at: Line, now: Timestamp, what: &str) -> Deviation {
        let mut text = format!("{} at {now}, {:?}:\n", self.name, at.act);
        for line in self.lines.iter().take(self.next) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {:?}: {:?}", line.when, line.act);
        }
        text.push_str(what);
        Deviation::new(text)
    }

    pub(super) fn state(&self, now: Timestamp) -> StateName {
        self.oracle.state(now)
    }
}

/// What differs between two stored records.
fn difference(seen: Option<&Stored>, expected: Option<&Stored>) -> String {
    match (seen, expected) {
        (Some(seen), Some(expected)) if seen.entry == expected.entry => format!(
            "  kept the notes: {:?}\n  expected notes: {:?}",
            seen.timeline, expected.timeline
        ),
        (Some(seen), Some(expected)) => {
            format!("      kept: {:?}\n  expected: {:?}", seen.entry, expected.entry)
        }
        _ => format!("      kept: {seen:?}\n  expected: {expected:?}"),
    }
}
