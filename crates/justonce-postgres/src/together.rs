//! Several steps of one kind as one statement, and their answers.

use justonce_core::codec::encode_outcome;
use justonce_core::{
    Action, Answer, Begin, Claimed, OnLapsed, Outcome, RecordId, Step, StoreResult,
};
use tokio_postgres::Row;

use crate::begun::Begun;
use crate::db::Db;
use crate::error::damaged;
use crate::numbers::{duration, fence, fence_number};
use crate::promise::Promise;
use crate::step::print_bytes;
use crate::words::escaped;

/// The largest body of an outcome that goes together with others: many of them make one statement.
const BODY_BYTES: usize = 16 * 1024;

/// Whether a begin may go together with others. Claims under `rerun` do not wait for the disk, and
/// must not be made to.
pub(crate) fn may_join(begin: &Begin) -> bool {
    begin.policy.on_lapsed() != OnLapsed::Rerun
        && begin.checkpoint.is_none()
        && begin.late_from().is_none()
}

/// Whether a completion may go together with others.
pub(crate) fn is_small(outcome: &Outcome) -> bool {
    outcome.body().is_none_or(|body| body.len() <= BODY_BYTES)
}

/// Whether two steps that may go together with others may go with each other. No statement touches
/// a record twice.
pub(crate) fn join(one: &Step, other: &Step) -> bool {
    let alike = match (&one.action, &other.action) {
        (Action::Begin(one), Action::Begin(other)) => {
            one.policy == other.policy && one.owner == other.owner
        }
        (Action::Complete(..), Action::Complete(..)) => true,
        _ => false,
    };
    alike && one.id != other.id
}

/// Takes several steps that join; an answer for each, in their order. A step without one was not
/// applied, or may be taken again without harm: it goes alone.
pub(crate) async fn apply(db: &Db, steps: &[Step]) -> StoreResult<Vec<Option<Answer>>> {
    let begins: Option<Vec<_>> = steps.iter().map(begin_of).collect();
    match begins {
        Some(begins) => claim(db, &begins).await,
        None => complete(db, steps).await,
    }
}

fn begin_of(step: &Step) -> Option<(&RecordId, &Begin)> {
    match &step.action {
        Action::Begin(begin) => Some((&step.id, begin)),
        _ => None,
    }
}

async fn claim(db: &Db, begins: &[(&RecordId, &Begin)]) -> StoreResult<Vec<Option<Answer>>> {
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
        .all(
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
    let answer = |((id, _), row): (&(&RecordId, &Begin), Option<&Row>)| {
        row.and_then(|row| claimed(row, id, &promise).ok())
    };
    Ok(begins.iter().zip(rows).map(answer).collect())
}

fn claimed(row: &Row, id: &RecordId, promise: &Promise) -> StoreResult<Answer> {
    let Some(given) = row.try_get(1).map_err(damaged)? else {
        return row.try_get::<_, Begun<'_>>(2).map_err(damaged)?.answer(id);
    };
    let lease = duration("lease", promise.lease)?;
    Ok(Answer::Claimed(Claimed { fence: fence(given)?, attempt: 1, checkpoint: None, lease }))
}

async fn complete(db: &Db, steps: &[Step]) -> StoreResult<Vec<Option<Answer>>> {
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
    let rows = db.all(&db.sql.complete_together, params).await?;
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
