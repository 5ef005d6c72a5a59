//! A step of the protocol as one statement.

use justonce_core::codec::encode_outcome;
use justonce_core::{
    Action, Answer, Begin, Checkpoint, Claimed, FailureKind, Fence, Fingerprint, HowResolved,
    NoteKind, Outcome, RecordId, Resolution, Resolve, Step, StoreResult, SweepDone, UnknownSince,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connections::Connection;
use crate::db::{Db, one_of};
use crate::error::{damaged, is_locked, is_read_only};
use crate::numbers::{duration, fence, fence_number, moment};
use crate::policy::PolicyColumns;
use crate::reply::{Begun, begin_answer, held_since, written};
use crate::row::{column, count, needed};
use crate::timeline_codec::{escaped, words_of};

/// Takes one step. A step that was queued for a batch has a connection already.
pub(crate) async fn apply(
    db: &Db,
    connection: Option<Connection>,
    step: &Step,
) -> StoreResult<Answer> {
    match &step.action {
        Action::Begin(begin) => claim(db, connection, &step.id, begin).await,
        Action::Peek(fingerprint) => peek(db, &step.id, fingerprint).await,
        Action::Complete(fence, outcome) => {
            complete(db, connection, &step.id, *fence, outcome).await
        }
        Action::Expire(fence) => expire_or_erase(db, step, *fence, false).await,
        Action::Erase(fence) => expire_or_erase(db, step, *fence, true).await,
        Action::Sweep => sweep(db, &step.id).await,
        _ => write(db, step).await,
    }
}

/// A fingerprint in its column: its version and its digest.
pub(crate) fn print_bytes(fingerprint: &Fingerprint) -> [u8; 33] {
    let mut bytes = [fingerprint.version(); 33];
    let (_, digest) = bytes.split_at_mut(1);
    digest.copy_from_slice(fingerprint.digest());
    bytes
}

async fn claim(
    db: &Db,
    connection: Option<Connection>,
    id: &RecordId,
    begin: &Begin,
) -> StoreResult<Answer> {
    let policy = PolicyColumns::of(&begin.policy);
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
        &policy.lease,
        &policy.lease_cap,
        &policy.on_lapsed,
        &policy.on_failure,
        &policy.back_off_first,
        &policy.back_off_max,
        &policy.max_attempts,
        &policy.retention,
        &policy.refuse,
        &point_name,
        &point_data,
        // Whether to wait for a locked record.
        &false,
    ];
    let is_alone = connection.is_none();
    let row = match db.all_by(connection, &db.sql.begin, &params).await {
        Err(error) if is_read_only(&error) => db.one(&db.sql.begin_read_only, &params).await?,
        claimed => one_of(claimed?)?,
    };
    match claimed(&row, id, point, &policy) {
        Err(error) if is_alone && is_locked(&error) => {}
        answer => return answer,
    }
    if let Some(wait) = params.last_mut() {
        *wait = &true;
    }
    claimed(&db.one_waiting(&db.sql.begin, &params).await?, id, point, &policy)
}

/// The answer of `begin.sql`.
fn claimed(
    row: &Row,
    id: &RecordId,
    point: Option<&Checkpoint>,
    policy: &PolicyColumns,
) -> StoreResult<Answer> {
    match row.try_get(0).map_err(damaged)? {
        None => begin_answer(row, 1, id),
        Some(given) => Ok(Answer::Claimed(Claimed {
            fence: fence(given)?,
            attempt: 1,
            checkpoint: point.map(|point| point.clone().numbered(0)),
            lease: duration("lease", policy.lease)?,
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
    connection: Option<Connection>,
    id: &RecordId,
    fence: Fence,
    outcome: &Outcome,
) -> StoreResult<Answer> {
    let outcome = encode_outcome(outcome);
    let params = completion(db.now(), id, fence, &outcome);
    let params: [&(dyn ToSql + Sync); 4] = [&params.0, &params.1, &params.2, &params.3];
    if !db.all_by(connection, &db.sql.complete, &params).await?.is_empty() {
        return Ok(Answer::Applied);
    }
    // Nothing was changed. The function tells why.
    let row = db.one(&db.sql.complete_by_rules, &params).await?;
    written("complete", row.try_get(0).unwrap_or_default(), None)
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

/// The parameters of `write_1` that only some writes have.
#[derive(Default)]
struct Write {
    outcome: Option<Vec<u8>>,
    passing: Option<bool>,
    jitter: Option<i64>,
    checkpoint: Option<(Vec<u8>, Vec<u8>, i64, String)>,
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
            Action::Checkpoint(_, checkpoint) => {
                let (name, data) = (checkpoint.name(), checkpoint.data().to_vec());
                let number = i64::from(checkpoint.number());
                let columns = (name.as_bytes().to_vec(), data, number, escaped(name));
                Self { checkpoint: Some(columns), ..Self::default() }
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
    let checkpoint = write.checkpoint.as_ref();
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
                &checkpoint.map(|columns| &columns.0),
                &checkpoint.map(|columns| &columns.1),
                &checkpoint.map(|columns| columns.2),
                &checkpoint.map(|columns| &columns.3),
                &write.reason,
                &write.resolution,
                &write.resolved_words,
            ],
        )
        .await?;
    let answer = written(name, needed(&row, "o_answer")?, column(&row, "o_left")?)?;
    let held = column::<Option<&str>>(&row, "o_held")?.unwrap_or_default();
    Ok(match (&step.action, held_since(held, &step.id)) {
        (Action::Abandon(fence, why), Some(since)) => {
            let (fence, reason) = (*fence, why.reason);
            Answer::Held(UnknownSince { fence, since, reason })
        }
        _ => answer,
    })
}

/// Expire, or erase, which leaves no tombstone.
async fn expire_or_erase(db: &Db, step: &Step, fence: Fence, erase: bool) -> StoreResult<Answer> {
    let (id, fence) = (step.id.as_bytes().as_slice(), fence_number(fence));
    let row = db.one(&db.sql.expire_or_erase, &[&db.now(), &id, &fence, &erase]).await?;
    written(step.action.name(), row.try_get(0).map_err(damaged)?, None)
}

async fn sweep(db: &Db, id: &RecordId) -> StoreResult<Answer> {
    let id = id.as_bytes().as_slice();
    let none: &[&[u8]] = &[];
    let row = db.one(&db.sql.sweep, &[&db.now(), &id, &1_i64, &false, &none]).await?;
    for (name, done) in [
        ("o_removed", SweepDone::Removed),
        ("o_buried", SweepDone::Buried),
        ("o_held", SweepDone::Held),
    ] {
        if count(&row, name)? > 0 {
            return Ok(Answer::Swept(done));
        }
    }
    Ok(Answer::Swept(SweepDone::Kept))
}
