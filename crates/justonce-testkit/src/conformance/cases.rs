//! Every (state × event × time relation × policy), enumerated with the help of the pure function.
//!
//! Each way to a state is walked on the oracle under every policy. There each event is put at
//! every relation to every boundary that the state has. Of the policies, those are taken under
//! which the function decides differently, and one more that changes from case to case, so that
//! a store is also caught that heeds a rule where it must not.

use std::collections::{BTreeSet, HashSet};

use justonce_core::{
    Action, Answer, Change, Decision, Fence, NoteKind, Scope, StateName, Timestamp,
};

use super::act::{Act, Call, Line, Print, Under, When};
use super::deviation::{Deviation, ensure};
use super::oracle::Oracle;
use super::run::Run;
use super::scripts::{Prelude, events, preludes};
use super::setting::Setting;

/// At least so many cases: fewer would mean that the enumeration lost a dimension.
const CASES_MIN: usize = 10_000;
/// At least so many of them need no time.
const IMMEDIATE_MIN: usize = 1_000;
/// Each case has its own tokens: this many bits are left for them.
const TOKEN_BITS: u32 = 16;

/// All cases, ready to run.
pub(super) fn all(setting: &Setting, start: Timestamp) -> Result<Vec<Run>, Deviation> {
    let mut plan = Plan {
        setting,
        runs: Vec::new(),
        cells: 0,
        paired: BTreeSet::new(),
        whens: HashSet::new(),
    };
    for prelude in preludes() {
        plan.add(&prelude, start)?;
    }
    let pairs = events().len() * setting.policy_count();
    ensure!(
        plan.runs.len() >= CASES_MIN && plan.paired.len() == pairs,
        "the suite has {} cases and pairs {} of {pairs} events and policies",
        plan.runs.len(),
        plan.paired.len()
    );
    let relations = When::all().len();
    ensure!(
        plan.whens.len() == relations,
        "only {} of {relations} time relations occur",
        plan.whens.len()
    );
    Ok(plan.runs)
}

/// The cases in which no time passes, those of one policy behind each other.
pub(super) fn immediate(setting: &Setting, start: Timestamp) -> Result<Vec<Run>, Deviation> {
    let mut runs = all(setting, start)?;
    runs.retain(Run::is_immediate);
    runs.sort_by_key(|run| run.oracle.policy());
    ensure!(
        runs.len() >= IMMEDIATE_MIN,
        "the suite has only {} cases in which no time passes",
        runs.len()
    );
    Ok(runs)
}

/// A record at the end of a prelude.
struct Reached {
    policy: usize,
    oracle: Oracle,
    now: Timestamp,
}

struct Plan<'a> {
    setting: &'a Setting,
    runs: Vec<Run>,
    cells: usize,
    paired: BTreeSet<(usize, usize)>,
    whens: HashSet<When>,
}

impl Plan<'_> {
    fn add(&mut self, prelude: &Prelude, start: Timestamp) -> Result<(), Deviation> {
        let mut reached = Vec::new();
        for policy in 0..self.setting.policy_count() {
            reached.push(walk(prelude, policy, self.setting, start)?);
        }
        for when in When::all() {
            for (event_number, event) in events().into_iter().enumerate() {
                for policy in self.choose(&reached, when, event) {
                    self.paired.insert((event_number, policy));
                    self.whens.insert(when);
                    self.push(prelude, policy, Line { when, act: event })?;
                }
            }
        }
        Ok(())
    }

    /// The policies under which a case is worth running.
    fn choose(&mut self, reached: &[Reached], when: When, event: Act) -> Vec<usize> {
        let mut behaviours = Vec::new();
        let mut chosen = Vec::new();
        let mut possible = Vec::new();
        for state in reached {
            let entry = state.oracle.entry();
            let Some(moment) = when.moment(entry, state.now, self.setting) else {
                continue;
            };
            possible.push(state.policy);
            let mut oracle = state.oracle.clone();
            let action = oracle.action(event, self.setting);
            let behaviour = Behaviour::of(&oracle, &action, moment);
            if !behaviours.contains(&behaviour) {
                behaviours.push(behaviour);
                chosen.push(state.policy);
            }
        }
        self.cells += 1;
        let turn = self.cells.checked_rem(possible.len()).unwrap_or_default();
        chosen.extend(possible.get(turn).filter(|one| !chosen.contains(one)).copied());
        chosen
    }

    fn push(&mut self, prelude: &Prelude, policy: usize, event: Line) -> Result<(), Deviation> {
        let number = self.runs.len();
        let name = format!("case {number}: {}, policy {policy}", prelude.name);
        let token = (number as u128) << TOKEN_BITS;
        let scope = Scope::builder().tenant("cases").build()?;
        let oracle = Oracle::new(scope, &format!("case-{number}"), policy, token)?;
        let mut lines = prelude.lines.clone();
        // The same event once more, as after a lost reply, and then a duplicate.
        lines.extend([
            event,
            Line::now(Act::Again),
            Line::now(Act::Begin(Print::Same, Call::New, Under::Own)),
        ]);
        self.runs.push(Run::new(name, oracle, lines));
        Ok(())
    }
}

/// Walks a prelude on the oracle alone.
fn walk(
    prelude: &Prelude,
    policy: usize,
    setting: &Setting,
    start: Timestamp,
) -> Result<Reached, Deviation> {
    let mut oracle = Oracle::new(Scope::global(), "walk", policy, 0)?;
    let mut now = start;
    for line in &prelude.lines {
        if let Some(moment) = line.when.moment(oracle.entry(), now, setting) {
            now = moment;
            let action = oracle.action(line.act, setting);
            let decision = oracle.decide(&action, now, oracle.fresh());
            oracle.carry_out(decision);
        }
    }
    Ok(Reached { policy, oracle, now })
}

/// What the function decides, without the policy that the record carries along.
#[derive(PartialEq)]
struct Behaviour {
    before: StateName,
    answer: Answer,
    after: After,
    note: Option<NoteKind>,
    durable: bool,
}

#[derive(PartialEq)]
enum After {
    Kept,
    Removed,
    Put { state: StateName, fence: Fence, expires_at: Option<Timestamp>, checkpoint: bool },
}

impl Behaviour {
    fn of(oracle: &Oracle, action: &Action, now: Timestamp) -> Self {
        let Decision { change, answer, note, durable } = oracle.decide(action, now, oracle.fresh());
        let after = match change {
            Change::Keep => After::Kept,
            Change::Remove => After::Removed,
            Change::Put(entry) => After::Put {
                state: entry.state_name(),
                fence: entry.fence(),
                expires_at: entry.expires_at(),
                checkpoint: has_checkpoint(&entry),
            },
        };
        Self { before: oracle.state(now), answer, after, note: note.map(|note| note.kind), durable }
    }
}

fn has_checkpoint(entry: &justonce_core::Entry) -> bool {
    use justonce_core::{Failed, State};
    match entry.record().map(|record| &record.state) {
        Some(State::InProgress(claim)) => claim.checkpoint.is_some(),
        Some(State::Unknown(unknown)) => unknown.checkpoint.is_some(),
        Some(State::Failed(Failed::AwaitingRetry(waiting))) => waiting.checkpoint.is_some(),
        _ => false,
    }
}
