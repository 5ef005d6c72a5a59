//! Chapter: what callers at once have done is there after the server was restarted.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Maintenance;
use justonce_core::{Answer, BusyWhy, Claimed, Existing, Fence, Lost, OnLapsed};

use super::backend::{Backend, Survival};
use super::crowd::{Crowd, done, other};
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;

/// What is done between two restarts. Each time another one is the last: what comes after a write
/// may bring it to the disk.
const DEEDS: [(Deed, OnLapsed); 7] = [
    (Deed::Claim, OnLapsed::Hold),
    (Deed::Complete, OnLapsed::Rerun),
    (Deed::Claim, OnLapsed::Resume),
    (Deed::Complete, OnLapsed::Hold),
    (Deed::Claim, OnLapsed::Rerun),
    (Deed::Complete, OnLapsed::Resume),
    (Deed::TakeOver, OnLapsed::Rerun),
];
/// How long the leases are that lapse here: they are waited for.
const SHORT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Claim,
    Complete,
    /// What was claimed lapses and is claimed anew: that must be on disk under each rule. Otherwise
    /// the owner before would be the owner again.
    TakeOver,
}

/// Many operations are claimed at once, others completed or taken over at once. Then the store and
/// its server are restarted: outcomes are replayed, claims that had to be on disk run on, others
/// may be free, owners that were superseded still are, and fences go on growing. For stores on a
/// clock that runs by itself.
///
/// # Errors
///
/// If an acknowledged outcome or a claim that had to be on disk is lost, or a fence is given again.
pub async fn reopened<B: Backend>(backend: B) -> Verdict {
    let mut stage = Stage::new(backend)?;
    for round in 0..DEEDS.len() {
        let mut deeds = DEEDS;
        deeds.rotate_left(round);
        let mut claimed = Vec::new();
        for (deed, rule) in deeds {
            let crowd = crowd(&stage, deed, rule, round)?;
            claimed.push((deed, rule, carry_out(&stage, &crowd, deed, rule).await?));
        }
        let Stage { backend, store, tokens, .. } = stage;
        drop(store);
        // Calls after the restart are other calls.
        stage = Stage { tokens, ..Stage::new(backend.restart().await?)? };
        stage.store.ready().await?;
        for (deed, rule, Given { before, fences }) in claimed {
            let crowd = crowd(&stage, deed, rule, round)?;
            if stage.backend.survival() == Survival::Nothing {
                // All are free again.
                crowd.claim().await?;
            } else if deed == Deed::Complete {
                crowd.ensure_replays().await?;
            } else {
                if deed == Deed::TakeOver {
                    for answer in crowd.complete(&before, |_| other()).await? {
                        ensure_eq!(answer, Answer::Lost(Lost::Superseded), "an owner of before");
                    }
                }
                let may_be_free = deed == Deed::Claim && rule == OnLapsed::Rerun;
                crowd.end(&owners(&crowd.ask().await?, &fences, may_be_free)?).await?;
            }
        }
    }
    Ok(())
}

/// The fences that a crowd got.
struct Given {
    /// Those of owners that were superseded.
    before: Vec<Fence>,
    fences: Vec<Fence>,
}

async fn carry_out<B: Backend>(
    stage: &Stage<B>,
    crowd: &Crowd<'_, B>,
    deed: Deed,
    rule: OnLapsed,
) -> Result<Given, Deviation> {
    let mut before = Vec::new();
    if deed == Deed::TakeOver {
        let short = stage.setting.base().on_lapsed(rule).lease(SHORT).lease_cap(SHORT).build()?;
        before = fences(crowd.under(&Arc::new(short)).claim().await?);
        stage.advance(SHORT).await?;
    }
    let fences = fences(crowd.claim().await?);
    if deed == Deed::Complete {
        for answer in crowd.complete(&fences, done).await? {
            ensure_eq!(answer, Answer::Applied, "the completion of an owner");
        }
    }
    Ok(Given { before, fences })
}

fn crowd<'a, B: Backend>(
    stage: &'a Stage<B>,
    deed: Deed,
    rule: OnLapsed,
    round: usize,
) -> Result<Crowd<'a, B>, Deviation> {
    Crowd::new(stage, &format!("{deed:?}-{rule:?}-{round}"), &stage.setting.on_lapsed(rule)?)
}

fn fences(claims: Vec<Claimed>) -> Vec<Fence> {
    claims.into_iter().map(|claimed| claimed.fence).collect()
}

/// The fences under which operations run after a restart: those of before, unless a claim could be
/// forgotten and was claimed anew.
fn owners(
    asked: &[Vec<Answer>],
    before: &[Fence],
    may_be_free: bool,
) -> Result<Vec<Fence>, Deviation> {
    let mut owners = Vec::new();
    for (answers, before) in asked.iter().zip(before) {
        let mut owner = *before;
        for answer in answers {
            if let Answer::Claimed(claimed) = answer {
                ensure!(may_be_free, "the claim under {before} was forgotten");
                ensure!(claimed.fence > *before, "{} was given after {before}", claimed.fence);
                ensure!(owner == *before, "two callers got the claim");
                owner = claimed.fence;
            }
        }
        for answer in answers {
            let runs = match answer {
                Answer::Claimed(_) => true,
                Answer::Existing(Existing::Busy(busy)) => {
                    busy.fence == owner && busy.why == BusyWhy::Running
                }
                _ => false,
            };
            ensure!(runs, "{owner} is running, and a begin heard {answer:?}");
        }
        owners.push(owner);
    }
    Ok(owners)
}
