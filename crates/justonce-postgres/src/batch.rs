//! Batches: several steps of one kind as one statement, and their answers.
//!
//! A batch saves the fixed cost of a statement: a commit, a sync of the disk, a round trip.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::codec::encode_outcome;
use justonce_core::store::{BatchExecutor, BatchLimits, Pending, Replies};
use justonce_core::{
    Action, Answer, Begin, Claimed, Effect, Existing, OnLapsed, RecordId, Step, StoreError,
    StoreErrorKind, StoreResult,
};
use tokio_postgres::Row;

use crate::connections::Connection;
use crate::db::Db;
use crate::error::{damaged, is_locked, is_read_only};
use crate::numbers::{duration, fence, fence_number};
use crate::policy::PolicyColumns;
use crate::reply::begin_answer;
use crate::step::{self, print_bytes};
use crate::timeline_codec::escaped;

/// One statement at a time while that is fast enough: the larger the batch, the less each step
/// costs. With a slow disk, a distant server or a locked record there are several.
pub(crate) const LIMITS: BatchLimits = BatchLimits {
    unbatched: 2,
    max_in_flight: 8,
    max_batch: 64,
    max_wait: Duration::from_millis(5),
};

/// Whether a begin may be batched.
pub(crate) fn may_batch_begin(begin: &Begin) -> bool {
    begin.checkpoint.is_none() && begin.late_from().is_none()
}

/// Whether a crash may lose a claim, so that it need not wait for the disk.
pub(crate) fn is_forgettable(begin: &Begin) -> bool {
    begin.policy.on_lapsed() == OnLapsed::Rerun
}

/// Sends batches of one kind to the server. A step without an answer was not applied, or may be
/// retried: it is sent again, alone.
pub(crate) struct Statements(pub(crate) Arc<Db>);

impl BatchExecutor for Statements {
    type Request = Step;
    type Reply = Option<Answer>;
    type Connection = Connection;

    fn fits(&self, batch: &[Pending<Self>], next: &Step) -> bool {
        // No statement touches a record twice.
        batch.first().is_none_or(|first| are_alike(&first.request.action, &next.action))
            && batch.iter().all(|pending| pending.request.id != next.id)
    }

    async fn connect(&self) -> StoreResult<Connection> {
        self.0.client().await
    }

    async fn execute(
        &self,
        connection: StoreResult<Connection>,
        mut batch: Vec<Pending<Self>>,
    ) -> Replies<Self::Reply> {
        let db = &*self.0;
        // All batches lock their records in one order.
        batch.sort_unstable_by_key(|pending| *pending.request.id.as_bytes());
        let (steps, reply_to): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|pending| (pending.request, pending.reply_to)).unzip();
        let answers = match (connection, &*steps) {
            (Ok(connection), [step]) => {
                step::apply(db, Some(connection), step).await.map(|answer| vec![Some(answer)])
            }
            (Ok(connection), steps) => apply(db, connection, steps).await,
            (Err(error), _) => Err(error),
        };
        let answers = match answers {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // A record is locked: its step waits for it on another connection.
            Err(error) if is_locked(&error) => vec![Ok(None); steps.len()],
            // Nothing was done, and one step may be the reason.
            Err(error) if steps.len() > 1 && is_of_one(&error) => vec![Ok(None); steps.len()],
            Err(error) => vec![Err(error); steps.len()],
        };
        reply_to.into_iter().zip(answers).collect()
    }
}

/// Whether nothing was done, and one of several steps may be the reason. A read-only server still
/// answers the begins that write nothing.
fn is_of_one(error: &StoreError) -> bool {
    let is_away = matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut);
    error.effect() == Effect::NotApplied && (is_read_only(error) || !is_away)
}

/// Whether two steps fit into one batch.
fn are_alike(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::Begin(one), Action::Begin(other)) => {
            one.policy == other.policy && one.owner == other.owner
        }
        (Action::Complete(..), Action::Complete(..)) => true,
        _ => false,
    }
}

/// Takes the steps of a batch; an answer for each, in their order.
async fn apply(
    db: &Db,
    connection: Connection,
    steps: &[Step],
) -> StoreResult<Vec<Option<Answer>>> {
    let begins: Option<Vec<_>> = steps.iter().map(begin_of).collect();
    match begins {
        Some(begins) => claim(db, connection, &begins).await,
        None => complete(db, connection, steps).await,
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
    connection: Connection,
    begins: &[(&RecordId, &Begin)],
) -> StoreResult<Vec<Option<Answer>>> {
    let Some((_, first)) = begins.first() else {
        return Ok(Vec::new());
    };
    let policy = PolicyColumns::of(&first.policy);
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
            Some(connection),
            &db.sql.begin_batch,
            &[
                &db.now(),
                &ids,
                &prints,
                &scopes,
                &keys,
                &tokens,
                &owner,
                &owner_word,
                &policy.lease,
                &policy.lease_cap,
                &policy.on_lapsed,
                &policy.on_failure,
                &policy.back_off_first,
                &policy.back_off_max,
                &policy.max_attempts,
                &policy.retention,
                &policy.refuse,
            ],
        )
        .await?;
    let rows = by_place(&rows, begins.len()).into_iter();
    // A retried begin finds its own claim by its token.
    let answer = |((id, begin), row): (&(&RecordId, &Begin), Option<&Row>)| {
        let answer = row.and_then(|row| claimed(row, id, &policy).ok());
        answer.filter(|answer| !(is_forgettable(begin) && is_to_be_written(answer)))
    };
    Ok(begins.iter().zip(rows).map(answer).collect())
}

/// Whether the step may have to write more than a first claim, which a crash must not lose.
const fn is_to_be_written(answer: &Answer) -> bool {
    matches!(answer, Answer::Claimable | Answer::Existing(Existing::Unknown(_)))
}

fn claimed(row: &Row, id: &RecordId, policy: &PolicyColumns) -> StoreResult<Answer> {
    let Some(given) = row.try_get(1).map_err(damaged)? else {
        return begin_answer(row, 2, id);
    };
    let lease = duration("lease", policy.lease)?;
    Ok(Answer::Claimed(Claimed { fence: fence(given)?, attempt: 1, checkpoint: None, lease }))
}

async fn complete(
    db: &Db,
    connection: Connection,
    steps: &[Step],
) -> StoreResult<Vec<Option<Answer>>> {
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
    let rows = db.all_by(Some(connection), &db.sql.complete_batch, params).await?;
    let applied = |row: Option<&Row>| row.map(|_| Answer::Applied);
    Ok(by_place(&rows, steps.len()).into_iter().map(applied).collect())
}

/// Rows by the places of their steps, counted from one in the first column.
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
