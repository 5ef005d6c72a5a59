//! Records in all states and of all ages, for the chapters that look at a store as a whole.

use std::sync::Arc;

use justonce_core::{Scope, Timestamp};

use super::act::{Boundary, Line, When};
use super::backend::Backend;
use super::deviation::{Deviation, ensure};
use super::oracle::Oracle;
use super::run::Run;
use super::runner::{Stage, collect, play};
use super::scripts::preludes;

/// How many tenants the records belong to.
const TENANTS: usize = 3;
/// The kinds of operations in their scopes.
const OPERATIONS: [&str; 2] = ["charge", "refund"];
/// Policies are taken in steps of this size, which shares no divisor with their number: so few of
/// them differ in all rules.
const POLICY_STEP: usize = 7;

/// Records that a store holds, each with its oracle.
pub(super) struct Population {
    pub(super) runs: Vec<Run>,
    /// The store's time when the last of them was made.
    pub(super) now: Timestamp,
}

/// How old the records of a generation may get while it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Beyond their retention.
    Old,
    /// Some leases.
    Middle,
    /// No time passes.
    New,
}

impl Population {
    /// Each way to each state under so many policies, in three generations: the first is beyond
    /// its retention when the last begins.
    pub(super) async fn settle<B: Backend>(
        stage: &Arc<Stage<B>>,
        policies: usize,
    ) -> Result<Self, Deviation> {
        let mut runs = Vec::new();
        for age in [Age::Old, Age::Middle, Age::New] {
            let generation = generation(age, runs.len(), policies)?;
            runs.extend(play(stage, generation).await?);
        }
        collect(&runs)?;
        // Away from all boundaries, where a clock that runs by itself would be on both sides.
        stage.advance(stage.setting.lease * 3 / 10).await?;
        let now = stage.backend.now().await?;
        let states: std::collections::BTreeSet<_> = runs.iter().map(|run| run.state(now)).collect();
        ensure!(
            states.len() == justonce_core::StateName::ALL.len(),
            "the population of the suite lacks states: {states:?}"
        );
        Ok(Self { runs, now })
    }
}

fn generation(age: Age, first: usize, policies: usize) -> Result<Vec<Run>, Deviation> {
    let mut runs = Vec::new();
    for (way, prelude) in preludes().into_iter().enumerate() {
        if !prelude.lines.iter().all(|line| fits(*line, age)) {
            continue;
        }
        for turn in 0..policies {
            let number = first + runs.len();
            let policy = way + turn * POLICY_STEP;
            let scope = scope(number)?;
            let token = (number as u128) << 16;
            let oracle = Oracle::new(scope, &format!("one-{number}"), policy, token)?;
            let name = format!("record {number}: {}, policy {policy}", prelude.name);
            runs.push(Run::new(name, oracle, prelude.lines.clone()));
        }
    }
    Ok(runs)
}

fn fits(line: Line, age: Age) -> bool {
    match line.when {
        When::Now => true,
        When::At(Boundary::RetentionEnd | Boundary::TombstoneEnd, _) | When::MuchLater => {
            age == Age::Old
        }
        When::At(..) => age != Age::New,
    }
}

/// The scope of a record by number.
fn scope(number: usize) -> Result<Scope, Deviation> {
    let operation = OPERATIONS.get(number % OPERATIONS.len()).copied();
    Ok(Scope::builder()
        .tenant(format!("tenant-{}", number % TENANTS))
        .operation(operation.unwrap_or_default())
        .build()?)
}
