//! Page by page: compare, look again, repair what may be repaired, tell the rest.

use std::collections::HashSet;
use std::fmt;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use justonce_core::engine::Settlement;
use justonce_core::store::{Cursor, ListQuery};
use justonce_core::{Engine, RecordId, Resolution, Resolve, Resolver, StateName, StoreError, Why};

use super::compare::{Disagreement, Finding, ObservedRecord, compare};
use super::effects::{About, BookedEffect, BoxError, Effects};
use super::report::{ReconcileError, ReconcileReport, Remedy};
use super::settings::ReconcileSettings;

/// How far a reconciliation has come: first through the records, then through the effects. It may
/// be kept, so that a run that was interrupted goes on where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcilePosition {
    /// Among the records, behind this one.
    Records(Option<Cursor>),
    /// Among the effects, behind this position of the books.
    Effects(Option<String>),
}

impl Default for ReconcilePosition {
    /// The beginning.
    fn default() -> Self {
        Self::Records(None)
    }
}

/// Compares the records of a store with the effects in the books of another system, and repairs
/// what it may.
///
/// Neither side is ever in memory as a whole: a page of records and the effects of just those, then
/// a page of effects and which of them have a record. Any number of nodes may do it at once.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Key, ManualClock, Operation, Outcome, Scope};
/// use justonce_saga::{
///     About, BookedEffect, BoxError, Disagreement, EffectPage, Effects, ReconcileSettings,
///     Reconciler,
/// };
/// use std::time::Duration;
///
/// /// The payments, as the bank has them.
/// struct Ledger(Vec<BookedEffect>);
///
/// impl Effects for Ledger {
///     // SELECT … FROM payments WHERE key = ANY($1)
///     async fn of(&self, asked: &[About]) -> Result<Vec<BookedEffect>, BoxError> {
///         let is_asked = |id| asked.iter().any(|about| about.id == id);
///         Ok(self.0.iter().filter(|effect| is_asked(effect.about.id)).cloned().collect())
///     }
///
///     // SELECT … FROM payments WHERE id > $1 ORDER BY id LIMIT $2
///     async fn page(&self, _: Option<&str>, _: usize) -> Result<EffectPage, BoxError> {
///         Ok(EffectPage { effects: self.0.clone(), next: None })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::default();
/// let engine = Engine::new(MemoryStore::new(clock.clone()));
/// let payment = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
/// engine.run(&payment, async |_| Ok(Outcome::bytes("paid"))).await?;
/// clock.advance(Duration::from_secs(3600));
///
/// // An hour later the bank knows of another payment, and not of this one.
/// let other = About::operation(Scope::global(), Key::client("order-18")?);
/// let age = Duration::from_secs(3600);
/// let ledger = Ledger(vec![BookedEffect { about: other, name: "receipt 4711".into(), age }]);
/// let mut found = Vec::new();
/// let report = Reconciler::new(&engine, ReconcileSettings::new("bank"), ledger)
///     .run(|finding, _remedy| found.push(finding.what))
///     .await?;
/// assert_eq!(found, [Disagreement::Missing, Disagreement::Orphan]);
/// assert_eq!((report.records, report.effects, report.repaired), (1, 1, 0));
/// # Ok(())
/// # }
/// ```
pub struct Reconciler<E> {
    engine: Engine,
    settings: ReconcileSettings,
    effects: E,
}

impl<E: Effects> Reconciler<E> {
    /// A reconciliation of the records under an engine with these books.
    #[must_use]
    pub fn new(engine: &Engine, settings: ReconcileSettings, effects: E) -> Self {
        Self { engine: engine.clone(), settings, effects }
    }

    /// Goes through everything once, and tells each finding with what was done about it.
    ///
    /// A finding is reported after its repair. If the process dies between the two, the repair is
    /// in the timeline of the record, and the next run does not find it again.
    ///
    /// # Errors
    ///
    /// If the store or the books cannot be read. What was repaired before stays so.
    pub async fn run(
        &self,
        mut observe: impl FnMut(&Finding, &Remedy),
    ) -> Result<ReconcileReport, ReconcileError> {
        let mut report = ReconcileReport::default();
        let mut position = Some(ReconcilePosition::default());
        while let Some(here) = position {
            let (page, next) = self.page(here, &mut observe).await?;
            report.add(&page);
            position = next;
        }
        Ok(report)
    }

    /// One page, and where the next one begins; nothing at the end. For programs that keep the
    /// position, or spread a long run over time.
    ///
    /// # Errors
    ///
    /// As [`Reconciler::run`]. The same page may be tried again.
    pub async fn page(
        &self,
        position: ReconcilePosition,
        mut observe: impl FnMut(&Finding, &Remedy),
    ) -> Result<(ReconcileReport, Option<ReconcilePosition>), ReconcileError> {
        let mut report = ReconcileReport::default();
        let (found, names, next) = match position {
            ReconcilePosition::Records(after) => {
                let (found, next) = self.records(after, &mut report).await?;
                let next = next.map_or(ReconcilePosition::Effects(None), |next| {
                    ReconcilePosition::Records(Some(next))
                });
                (found, None, Some(next))
            }
            ReconcilePosition::Effects(after) => {
                let (found, names, next) = self.strangers(after, &mut report).await?;
                (found, Some(names), next.map(|next| ReconcilePosition::Effects(Some(next))))
            }
        };
        for finding in found {
            let Some(finding) = self.again(&finding).await? else {
                report.gone += 1;
                continue;
            };
            // Effects of one operation may lie on many pages: it is reported with the first of
            // them.
            let first = finding.effects.first().map(|effect| effect.name.as_str());
            if let (Some(names), Some(first)) = (&names, first)
                && !names.contains(first)
            {
                continue;
            }
            let remedy = self.remedy(&finding).await;
            report.count(&remedy);
            observe(&finding, &remedy);
        }
        Ok((report, next))
    }

    /// A page of records against the effects of just those.
    async fn records(
        &self,
        after: Option<Cursor>,
        report: &mut ReconcileReport,
    ) -> Result<(Vec<Finding>, Option<Cursor>), ReconcileError> {
        let query = ListQuery {
            state: None,
            scope: self.settings.scope.clone(),
            unchanged_for: Some(self.settings.rules.grace),
            limit: self.settings.page,
            after,
            only: None,
        };
        let page = self.engine.store().list(&query).await?;
        // Of what is over only a hash is left, and it is not repeated.
        let records = page.records.into_iter().filter(|seen| seen.state != StateName::Tombstone);
        let seen: Vec<ObservedRecord> = records.map(ObservedRecord::from).collect();
        report.records += seen.len() as u64;
        let asked: Vec<About> = seen.iter().map(|seen| seen.about.clone()).collect();
        let effects = self.of(&asked).await?;
        Ok((compare(&seen, &effects, &self.settings.rules), page.next))
    }

    /// A page of effects, of which only those without a record are found here. Also says which
    /// effects the page had.
    async fn strangers(
        &self,
        after: Option<String>,
        report: &mut ReconcileReport,
    ) -> Result<(Vec<Finding>, HashSet<String>, Option<String>), ReconcileError> {
        let limit = self.settings.page.max(1);
        let page = self.effects.page(after.as_deref(), limit).await;
        let page = page.map_err(ReconcileError::Effects)?;
        if let Some(next) = page.next.as_ref().filter(|next| after.as_ref() == Some(next)) {
            return Err(ReconcileError::Circle(next.clone()));
        }
        report.effects += page.effects.len() as u64;
        let names = page.effects.iter().map(|effect| effect.name.clone()).collect();
        let ids: HashSet<RecordId> = page.effects.iter().map(|effect| effect.about.id).collect();
        let store = self.engine.store();
        let looked = stream::iter(ids)
            .map(|id| async move { Ok::<_, StoreError>((id, store.get(&id).await?.is_some())) })
            .buffer_unordered(self.settings.at_once.max(1));
        let known = looked.try_filter_map(async |(id, there)| Ok(there.then_some(id)));
        let known: HashSet<RecordId> = known.try_collect().await?;
        let strange = page.effects.into_iter().filter(|effect| !known.contains(&effect.about.id));
        let strange: Vec<BookedEffect> = strange.collect();
        Ok((compare(&[], &strange, &self.settings.rules), names, page.next))
    }

    /// The effects of these operations, and of no others.
    async fn of(&self, asked: &[About]) -> Result<Vec<BookedEffect>, ReconcileError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut effects = self.effects.of(asked).await.map_err(ReconcileError::Effects)?;
        let ids: HashSet<RecordId> = asked.iter().map(|about| about.id).collect();
        effects.retain(|effect| ids.contains(&effect.about.id));
        Ok(effects)
    }

    /// Looks at both sides again, the record first: an operation may have ended meanwhile, and its
    /// effect is there before its record says so. What has changed since is not judged.
    async fn again(&self, finding: &Finding) -> Result<Option<Finding>, ReconcileError> {
        let seen = match finding.record {
            None => {
                if self.engine.store().get(&finding.about.id).await?.is_some() {
                    return Ok(None);
                }
                Vec::new()
            }
            Some((state, fence)) => {
                let Some(now) = self.engine.inspect(finding.about.id).await? else {
                    return Ok(None);
                };
                if (now.state(), now.stored.entry.fence()) != (state, fence) {
                    return Ok(None);
                }
                vec![ObservedRecord { about: finding.about.clone(), state, fence }]
            }
        };
        let effects = self.of(std::slice::from_ref(&finding.about)).await?;
        let found = compare(&seen, &effects, &self.settings.rules).into_iter().next();
        Ok(found.filter(|again| again.what == finding.what))
    }

    /// Repairs a finding, if that is allowed.
    async fn remedy(&self, finding: &Finding) -> Remedy {
        let failed = |error: BoxError| Remedy::Failed(error.to_string());
        let resolved = match finding.what {
            Disagreement::UnknownDone => self.complete(finding).await,
            Disagreement::UnknownUndone => self.release(finding).await,
            _ => Ok(Remedy::Reported),
        };
        match resolved {
            Ok(Remedy::Reported) => match self.effects.repair(finding).await {
                Ok(Some(what)) => Remedy::Repaired(what),
                Ok(None) => Remedy::Reported,
                Err(error) => failed(error),
            },
            Ok(remedy) => remedy,
            Err(error) => failed(error),
        }
    }

    /// Its effect is there: so it happened.
    async fn complete(&self, finding: &Finding) -> Result<Remedy, BoxError> {
        let Some(effect) = finding.effects.first().filter(|_| self.settings.complete) else {
            return Ok(Remedy::Reported);
        };
        let Some(outcome) = self.effects.outcome(effect).await? else {
            return Ok(Remedy::Reported);
        };
        let why = format!("its effect {} is there", effect.name);
        let resolved = self.resolve(finding, Resolution::Complete(outcome), &why).await?;
        Ok(if resolved { Remedy::Completed } else { Remedy::Lost })
    }

    /// No effect is there, and by now none will be.
    async fn release(&self, finding: &Finding) -> Result<Remedy, BoxError> {
        let (Some(time), Some(scope)) = (self.settings.release_after, &finding.about.scope) else {
            return Ok(Remedy::Reported);
        };
        if !self.engine.is_unknown_for(finding.about.id, scope.clone(), time).await? {
            return Ok(Remedy::TooEarly);
        }
        let why = format!("no effect is there after {} s", time.as_secs());
        let resolved = self.resolve(finding, Resolution::Release, &why).await?;
        Ok(if resolved { Remedy::Released } else { Remedy::Lost })
    }

    /// Whether it was this word that counted. The fence is that of the claim that was judged.
    async fn resolve(
        &self,
        finding: &Finding,
        resolution: Resolution,
        why: &str,
    ) -> Result<bool, BoxError> {
        let Some((_, fence)) = finding.record else { return Ok(false) };
        let by = Resolver::probe(&self.settings.name);
        let resolve = Resolve { resolution, by, why: Why::new(why) };
        let settlement = self.engine.resolve(finding.about.id, fence, resolve).await?;
        Ok(settlement == Settlement::Stored)
    }
}

impl<E> fmt::Debug for Reconciler<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("settings", &self.settings).finish_non_exhaustive()
    }
}
