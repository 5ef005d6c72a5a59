//! A step of the protocol as one statement, and its answer.

use justonce_core::codec::encode_outcome;
use justonce_core::{
    Action, Answer, Begin, Checkpoint, Claimed, Existing, FailureKind, Fence, Fingerprint,
    HowResolved, Lost, NoteKind, Outcome, RecordId, Resolution, Resolve, Step, StoreError,
    StoreErrorKind, StoreResult, SweepDone, Timestamp, UnknownSince,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::begun::Begun;
use crate::connections::Connection;
use crate::db::Db;
use crate::error::{damaged, is_locked, is_read_only};
use crate::numbers::{duration, fence, fence_number, moment};
use crate::promise::Promise;
use crate::read::{self, needed};
use crate::words::{escaped, words_of};

/// Takes one step. What may go together with others has a connection already.
pub(crate) async fn apply(db: &Db, way: Option<Connection>, step: &Step) -> StoreResult<Answer> {
    match &step.action {
        Action::Begin(begin) => claim(db, way, &step.id, begin).await,
        Action::Peek(fingerprint) => peek(db, &step.id, fingerprint).await,
        Action::Complete(fence, outcome) => complete(db, way, &step.id, *fence, outcome).await,
        Action::Expire(fence) => give_up(db, step, *fence, false).await,
        Action::Erase(fence) => give_up(db, step, *fence, true).await,
        Action::Sweep => sweep(db, &step.id).await,
        _ => write(db, step).await,
    }
}

/// A fingerprint as it is kept: its version, and its digest.
pub(crate) fn print_bytes(fingerprint: &Fingerprint) -> [u8; 33] {
    let mut bytes = [fingerprint.version(); 33];
    let (_, digest) = bytes.split_at_mut(1);
    digest.copy_from_slice(fingerprint.digest());
    bytes
}

async fn claim(
    db: &Db,
    way: Option<Connection>,
    id: &RecordId,
    begin: &Begin,
) -> StoreResult<Answer> {
    let promise = Promise::of(&begin.policy);
    let (now, print, owner_word) =
        (db.now(), print_bytes(&begin.fingerprint), escaped(begin.owner.as_str()));
    let (id_bytes, token) = (id.as_bytes().as_slice(), begin.token.0.to_be_bytes());
    let (scope, key, owner) = (begin.scope.as_str(), begin.key.as_str(), begin.owner.as_str());
    let (token, late_from) = (token.as_slice(), begin.late_from().map(moment));
    let point = begin.checkpoint.as_ref();
    let point_name = point.map(|point| point.name().as_bytes());
    let point_data = point.map(|point| &**point.data());
    let mut params: [&(dyn ToSql + Sync); 21] = [
        &now,
        &id_bytes,
        &print.as_slice(),
        &scope,
        &key,
        &owner,
        &owner_word,
        &token,
        &late_from,
        &promise.lease,
        &promise.lease_cap,
        &promise.on_lapsed,
        &promise.on_failure,
        &promise.back_off_first,
        &promise.back_off_max,
        &promise.max_attempts,
        &promise.retention,
        &promise.refuse,
        &point_name,
        &point_data,
        // Whether a record is waited for that somebody else has.
        &false,
    ];
    let is_alone = way.is_none();
    let row = match db.one_by(way, &db.sql.claim, &params).await {
        Err(error) if is_read_only(&error) => db.one(&db.sql.begin, &params).await?,
        claimed => claimed?,
    };
    match claimed(&row, id, point, &promise) {
        Err(error) if is_alone && is_locked(&error) => {}
        answer => return answer,
    }
    if let Some(wait) = params.last_mut() {
        *wait = &true;
    }
    claimed(&db.one_patient(&db.sql.claim, &params).await?, id, point, &promise)
}

/// What `claim.sql` answers.
fn claimed(
    row: &Row,
    id: &RecordId,
    point: Option<&Checkpoint>,
    promise: &Promise,
) -> StoreResult<Answer> {
    match row.try_get(0).map_err(damaged)? {
        None => {
            let answer = row.try_get::<_, Begun<'_>>(1).map_err(damaged)?.answer(id)?;
            Ok(held_by(answer, id, row.try_get(3).map_err(damaged)?))
        }
        Some(given) => Ok(Answer::Claimed(Claimed {
            fence: fence(given)?,
            attempt: 1,
            checkpoint: point.map(|point| point.clone().numbered(0)),
            lease: duration("lease", promise.lease)?,
        })),
    }
}

async fn peek(db: &Db, id: &RecordId, fingerprint: &Fingerprint) -> StoreResult<Answer> {
    let (id_bytes, print) = (id.as_bytes().as_slice(), print_bytes(fingerprint));
    let row = db.one(&db.sql.peek, &[&db.now(), &id_bytes, &print.as_slice()]).await?;
    row.try_get::<_, Begun<'_>>(0).map_err(damaged)?.answer(id)
}

async fn complete(
    db: &Db,
    way: Option<Connection>,
    id: &RecordId,
    fence: Fence,
    outcome: &Outcome,
) -> StoreResult<Answer> {
    let outcome = encode_outcome(outcome);
    let params = completion(db.now(), id, fence, &outcome);
    let params: [&(dyn ToSql + Sync); 4] = [&params.0, &params.1, &params.2, &params.3];
    if db.maybe_one_by(way, &db.sql.complete, &params).await?.is_some() {
        return Ok(Answer::Applied);
    }
    // Nothing was changed: somebody else has it, or it has ended. Which one, all the rules know.
    let row = db.one(&db.sql.complete_any, &params).await?;
    completed(row.try_get(0).ok())
}

/// The parameters of `complete_1`.
pub(crate) fn completion<'a>(
    now: Option<i64>,
    id: &'a RecordId,
    fence: Fence,
    outcome: &'a [u8],
) -> (Option<i64>, &'a [u8], i64, &'a [u8]) {
    (now, id.as_bytes().as_slice(), fence_number(fence), outcome)
}

/// What `complete_1` answers.
pub(crate) fn completed(answer: Option<&str>) -> StoreResult<Answer> {
    written("complete", answer.unwrap_or_default(), None)
}

/// The parameters of `write_1` that not every write has.
#[derive(Default)]
struct Write {
    outcome: Option<Vec<u8>>,
    passing: Option<bool>,
    jitter: Option<i64>,
    point: Option<(Vec<u8>, Vec<u8>, i64, String)>,
    reason: Option<String>,
    resolution: Option<&'static str>,
    resolved_words: Option<String>,
}

impl Write {
    fn of(action: &Action) -> Self {
        match action {
            Action::Fail(_, failure) => Self {
                outcome: Some(encode_outcome(&failure.outcome)),
                passing: Some(failure.kind == FailureKind::Passing),
                jitter: Some(i64::from(failure.jitter)),
                ..Self::default()
            },
            Action::Checkpoint(_, point) => {
                let (name, data) = (point.name().as_bytes().to_vec(), point.data().to_vec());
                let number = i64::from(point.number());
                let point = Some((name, data, number, escaped(point.name())));
                Self { point, ..Self::default() }
            }
            Action::Abandon(_, why) => {
                let words = words_of(&NoteKind::held(why.reason, why.cause.clone()));
                Self { reason: Some(words), ..Self::default() }
            }
            Action::Resolve(_, resolve) => Self::of_resolve(resolve),
            _ => Self::default(),
        }
    }

    fn of_resolve(resolve: &Resolve) -> Self {
        let (how, outcome) = match &resolve.resolution {
            Resolution::Complete(outcome) => (HowResolved::Completed, Some(outcome)),
            Resolution::Fail(outcome) => (HowResolved::Failed, Some(outcome)),
            Resolution::Release => (HowResolved::Released, None),
        };
        let kind = NoteKind::Resolved(resolve.by.clone(), how, resolve.why.clone());
        Self {
            outcome: outcome.map(encode_outcome),
            resolution: Some(how.as_str()),
            resolved_words: Some(words_of(&kind)),
            ..Self::default()
        }
    }
}

async fn write(db: &Db, step: &Step) -> StoreResult<Answer> {
    let name = step.action.name();
    let write = Write::of(&step.action);
    let fence = fence_number(step.action.fence().unwrap_or_default());
    let point = write.point.as_ref();
    let row = db
        .one(
            &db.sql.write,
            &[
                &db.now(),
                &step.id.as_bytes().as_slice(),
                &name,
                &fence,
                &write.outcome,
                &write.passing,
                &write.jitter,
                &encode_outcome(&Outcome::empty()),
                &point.map(|point| &point.0),
                &point.map(|point| &point.1),
                &point.map(|point| point.2),
                &point.map(|point| &point.3),
                &write.reason,
                &write.resolution,
                &write.resolved_words,
            ],
        )
        .await?;
    let answer = written(name, needed(&row, "o_answer")?, read::column(&row, "o_left")?)?;
    let held = read::column::<Option<&str>>(&row, "o_held")?.unwrap_or_default();
    Ok(match (&step.action, held_since(held, &step.id)) {
        (Action::Abandon(fence, why), Some(since)) => {
            let (fence, reason) = (*fence, why.reason);
            Answer::Held(UnknownSince { fence, since, reason })
        }
        _ => answer,
    })
}

/// The answer of a begin, where it was the begin that made the operation unknown.
pub(crate) fn held_by(answer: Answer, id: &RecordId, held: Option<&str>) -> Answer {
    match answer {
        Answer::Existing(Existing::Unknown(unknown))
            if held_since(held.unwrap_or_default(), id).is_some() =>
        {
            Answer::Held(unknown)
        }
        other => other,
    }
}

/// Since when an operation is unknown, if it is among those that a transaction made unknown.
fn held_since(held: &str, id: &RecordId) -> Option<Timestamp> {
    let mut all = held_in(held);
    all.find(|(held, _)| held == id).map(|(_, since)| since)
}

/// The operations that a transaction made unknown: see migration 11.
pub(crate) fn held_in(held: &str) -> impl Iterator<Item = (RecordId, Timestamp)> {
    held.split_terminator(',').filter_map(|line| {
        let (id, since) = line.split_once(' ')?;
        Some((RecordId::parse(id)?, Timestamp::from_millis(since.parse().ok()?)))
    })
}

/// What a write answers.
fn written(step: &str, answer: &str, left: Option<i64>) -> StoreResult<Answer> {
    Ok(match answer {
        "applied" => Answer::Applied,
        "renewed" => Answer::Renewed(duration("o_left", left.unwrap_or_default())?),
        "capped" => Answer::Capped,
        "gone" => Answer::Lost(Lost::Gone),
        "superseded" => Answer::Lost(Lost::Superseded),
        "settled" => Answer::Lost(Lost::Settled),
        "held" => Answer::Lost(Lost::Held),
        "not_ended" => Answer::Lost(Lost::NotEnded),
        "not_unknown" => Answer::Lost(Lost::NotUnknown),
        other => return Err(unexpected(step, other)),
    })
}

/// Expire, and erase, which leaves no tombstone.
async fn give_up(db: &Db, step: &Step, fence: Fence, erase: bool) -> StoreResult<Answer> {
    let (id, fence) = (step.id.as_bytes().as_slice(), fence_number(fence));
    let row = db.one(&db.sql.give_up, &[&db.now(), &id, &fence, &erase]).await?;
    written(step.action.name(), row.try_get(0).map_err(damaged)?, None)
}

async fn sweep(db: &Db, id: &RecordId) -> StoreResult<Answer> {
    let id = id.as_bytes().as_slice();
    let none: &[&[u8]] = &[];
    let row = db.one(&db.sql.sweep, &[&db.now(), &id, &1_i64, &false, &none]).await?;
    let did = |name| Ok::<_, StoreError>(read::count(&row, name)? > 0);
    Ok(Answer::Swept(if did("o_removed")? {
        SweepDone::Removed
    } else if did("o_buried")? {
        SweepDone::Buried
    } else if did("o_held")? {
        SweepDone::Held
    } else {
        SweepDone::Kept
    }))
}

/// A function of ours that answers what it should not: a schema of another release.
pub(crate) fn unexpected(step: &str, answer: &str) -> StoreError {
    let message = format!("PostgreSQL answered {answer:?} to {step}");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}
