//! Several steps of one kind as one statement, and their answers.
//!
//! What is won is what a statement costs besides its steps: a commit, a sync of the disk, a round
//! trip, a server process that wakes up.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::codec::encode_outcome;
use justonce_core::store::{Carrier, LaneLimits, Told, Waiting};
use justonce_core::{
    Action, Answer, Begin, Claimed, Effect, Existing, OnLapsed, RecordId, Step, StoreError,
    StoreErrorKind, StoreResult,
};
use tokio_postgres::Row;

use crate::begun::Begun;
use crate::connections::Connection;
use crate::db::Db;
use crate::error::{damaged, is_locked, is_read_only};
use crate::numbers::{duration, fence, fence_number};
use crate::promise::Promise;
use crate::step::{self, held_by, print_bytes};
use crate::words::escaped;

/// While one statement at a time keeps up, there is one: the more go together, the less each costs,
/// and a statement takes a millisecond or two. A slow disk, a far server or a locked record make it
/// more.
pub(crate) const LIMITS: LaneLimits =
    LaneLimits { alone: 2, at_most: 8, together: 64, patience: Duration::from_millis(5) };

/// Whether a begin may go together with others.
pub(crate) fn may_join(begin: &Begin) -> bool {
    begin.checkpoint.is_none() && begin.late_from().is_none()
}

/// Whether a claim need not wait for the disk, nor for others that do.
pub(crate) fn is_forgettable(begin: &Begin) -> bool {
    begin.policy.on_lapsed() == OnLapsed::Rerun
}

/// Takes steps of one kind to the server. A step that gets no answer was not applied, or may be
/// taken again without harm: it goes alone.
#[derive(Debug)]
pub(crate) struct Statements(pub(crate) Arc<Db>);

impl Carrier for Statements {
    type Load = Step;
    type Answer = Option<Answer>;
    type Way = Connection;

    fn joins(&self, going: &[Waiting<Self>], next: &Step) -> bool {
        // No statement touches a record twice.
        going.first().is_none_or(|first| are_alike(&first.load.action, &next.action))
            && going.iter().all(|waiting| waiting.load.id != next.id)
    }

    async fn way(&self) -> StoreResult<Connection> {
        self.0.client().await
    }

    async fn carry(
        &self,
        way: StoreResult<Connection>,
        mut going: Vec<Waiting<Self>>,
    ) -> Told<Self::Answer> {
        let db = &*self.0;
        // Whoever takes several records takes them in one order.
        going.sort_unstable_by_key(|waiting| *waiting.load.id.as_bytes());
        let (steps, callers): (Vec<_>, Vec<_>) =
            going.into_iter().map(|waiting| (waiting.load, waiting.caller)).unzip();
        let answers = match (way, &*steps) {
            (Ok(way), [step]) => {
                step::apply(db, Some(way), step).await.map(|answer| vec![Some(answer)])
            }
            (Ok(way), steps) => apply(db, way, steps).await,
            (Err(error), _) => Err(error),
        };
        let answers = match answers {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // Somebody else has a record: whoever needs it waits elsewhere.
            Err(error) if is_locked(&error) => vec![Ok(None); steps.len()],
            // Nothing was done, and it need not be everybody's fault.
            Err(error) if steps.len() > 1 && is_of_one(&error) => vec![Ok(None); steps.len()],
            Err(error) => vec![Err(error); steps.len()],
        };
        callers.into_iter().zip(answers).collect()
    }
}

/// Whether nothing was done, and an error may be about one of several steps only. Where no writes
/// are taken, those that write nothing are answered.
fn is_of_one(error: &StoreError) -> bool {
    let is_away = matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut);
    error.effect() == Effect::NotApplied && (is_read_only(error) || !is_away)
}

/// Whether two steps that may go together with others may go with each other.
fn are_alike(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::Begin(one), Action::Begin(other)) => {
            one.policy == other.policy && one.owner == other.owner
        }
        (Action::Complete(..), Action::Complete(..)) => true,
        _ => false,
    }
}

/// Takes several steps that join; an answer for each, in their order.
async fn apply(db: &Db, way: Connection, steps: &[Step]) -> StoreResult<Vec<Option<Answer>>> {
    let begins: Option<Vec<_>> = steps.iter().map(begin_of).collect();
    match begins {
        Some(begins) => claim(db, way, &begins).await,
        None => complete(db, way, steps).await,
    }
}

fn begin_of(step: &Step) -> Option<(&RecordId, &Begin)> {
    match &step.action {
        Action::Begin(begin) => Some((&step.id, begin)),
        _ => None,
    }
}

async fn claim(
    db: &Db,
    way: Connection,
    begins: &[(&RecordId, &Begin)],
) -> StoreResult<Vec<Option<Answer>>> {
    let Some((_, first)) = begins.first() else {
        return Ok(Vec::new());
    };
    let promise = Promise::of(&first.policy);
    let (owner, owner_word) = (first.owner.as_str(), escaped(first.owner.as_str()));
    let ids: Vec<&[u8]> = begins.iter().map(|(id, _)| id.as_bytes().as_slice()).collect();
    let prints: Vec<_> = begins.iter().map(|(_, begin)| print_bytes(&begin.fingerprint)).collect();
    let prints: Vec<&[u8]> = prints.iter().map(<[u8; 33]>::as_slice).collect();
    let scopes: Vec<&str> = begins.iter().map(|(_, begin)| begin.scope.as_str()).collect();
    let keys: Vec<&str> = begins.iter().map(|(_, begin)| begin.key.as_str()).collect();
    let tokens: Vec<_> = begins.iter().map(|(_, begin)| begin.token.0.to_be_bytes()).collect();
    let tokens: Vec<&[u8]> = tokens.iter().map(<[u8; 16]>::as_slice).collect();
    let rows = db
        .all_by(
            Some(way),
            &db.sql.claim_together,
            &[
                &db.now(),
                &ids,
                &prints,
                &scopes,
                &keys,
                &tokens,
                &owner,
                &owner_word,
                &promise.lease,
                &promise.lease_cap,
                &promise.on_lapsed,
                &promise.on_failure,
                &promise.back_off_first,
                &promise.back_off_max,
                &promise.max_attempts,
                &promise.retention,
                &promise.refuse,
            ],
        )
        .await?;
    let rows = by_place(&rows, begins.len()).into_iter();
    // A begin that is repeated finds its own claim by its token.
    let answer = |((id, begin), row): (&(&RecordId, &Begin), Option<&Row>)| {
        let answer = row.and_then(|row| claimed(row, id, &promise).ok());
        answer.filter(|answer| !(is_forgettable(begin) && is_to_be_written(answer)))
    };
    Ok(begins.iter().zip(rows).map(answer).collect())
}

/// Whether more than a first claim may have to be written, which a crash must not forget.
const fn is_to_be_written(answer: &Answer) -> bool {
    matches!(answer, Answer::Claimable | Answer::Existing(Existing::Unknown(_)))
}

fn claimed(row: &Row, id: &RecordId, promise: &Promise) -> StoreResult<Answer> {
    let Some(given) = row.try_get(1).map_err(damaged)? else {
        let answer = row.try_get::<_, Begun<'_>>(2).map_err(damaged)?.answer(id)?;
        return Ok(held_by(answer, id, row.try_get(4).map_err(damaged)?));
    };
    let lease = duration("lease", promise.lease)?;
    Ok(Answer::Claimed(Claimed { fence: fence(given)?, attempt: 1, checkpoint: None, lease }))
}

async fn complete(db: &Db, way: Connection, steps: &[Step]) -> StoreResult<Vec<Option<Answer>>> {
    let mut ids: Vec<&[u8]> = Vec::with_capacity(steps.len());
    let mut fences = Vec::with_capacity(steps.len());
    let mut outcomes = Vec::with_capacity(steps.len());
    for step in steps {
        if let Action::Complete(fence, outcome) = &step.action {
            ids.push(step.id.as_bytes().as_slice());
            fences.push(fence_number(*fence));
            outcomes.push(encode_outcome(outcome));
        }
    }
    let params: crate::db::Params<'_> = &[&db.now(), &ids, &fences, &outcomes];
    let rows = db.all_by(Some(way), &db.sql.complete_together, params).await?;
    let applied = |row: Option<&Row>| row.map(|_| Answer::Applied);
    Ok(by_place(&rows, steps.len()).into_iter().map(applied).collect())
}

/// Rows by the places that they answer, counted from one in their first column.
fn by_place(rows: &[Row], count: usize) -> Vec<Option<&Row>> {
    let mut places = vec![None; count];
    for row in rows {
        let place: i64 = row.try_get(0).unwrap_or_default();
        let place = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
        if let Some(place) = place.and_then(|place| places.get_mut(place)) {
            *place = Some(row);
        }
    }
    places
}
