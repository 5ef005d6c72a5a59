//! Chapter: the short history of a record is complete, in order and bounded.

use std::sync::Arc;

use justonce_core::{
    Fence, HowResolved, MAX_NOTES, NoteKind, Owner, RefusedStep, Resolver, Scope, UnknownReason,
    Why,
};

use super::act::{Act, Boundary, Call, How, Line, Pick, Print, Say, Under};
use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::oracle::Oracle;
use super::run::Run;
use super::runner::{Stage, collect, play};

/// How many writes are refused: so many that most notes must make room.
const REFUSED: usize = 3 * MAX_NOTES;

const BEGIN: Act = Act::Begin(Print::Same, Call::New, Under::Own);

/// The timelines of a resumed operation, of a held one and of one with more events than it has
/// room for.
///
/// # Errors
///
/// If a note is missing, wrong or too many.
pub async fn timeline<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let resume = policy(&stage, justonce_core::OnLapsed::Resume)?;
    let hold = policy(&stage, justonce_core::OnLapsed::Hold)?;
    let runs = vec![
        run("resumed", resume, resumed())?,
        run("held", hold, held())?,
        run("long", resume, long())?,
    ];
    let runs = play(&stage, runs).await?;
    collect(&runs)?;
    let [resumed, held, long] = runs.as_slice() else {
        return Err(Deviation::new("a run was lost"));
    };
    ensure_resumed(resumed)?;
    ensure_held(held)?;
    ensure_long(long)
}

/// The first policy with this rule.
fn policy<B: Backend>(stage: &Stage<B>, rule: justonce_core::OnLapsed) -> Result<usize, Deviation> {
    let numbers = 0..stage.setting.policy_count();
    let mut with_rule = numbers.filter(|number| stage.setting.policy(*number).on_lapsed() == rule);
    with_rule
        .next()
        .ok_or_else(|| Deviation::new("no such policy"))
}

fn run(name: &str, policy: usize, lines: Vec<Line>) -> Result<Run, Deviation> {
    let oracle = Oracle::new(Scope::global(), name, policy, 0)?;
    Ok(Run::new(name.to_owned(), oracle, lines))
}

fn resumed() -> Vec<Line> {
    vec![
        Line::now(BEGIN),
        Line::now(Act::Checkpoint(Pick::Current, Say::First)),
        Line::now(Act::Renew(Pick::Current)),
        Line::at(Boundary::LeaseEnd, BEGIN),
        Line::now(Act::Complete(Pick::Older, Say::First)),
        Line::now(Act::Abandon(Pick::Current, UnknownReason::Dropped)),
        Line::now(BEGIN),
        Line::now(Act::Complete(Pick::Current, Say::First)),
        Line::now(Act::Again),
        Line::now(BEGIN),
    ]
}

fn held() -> Vec<Line> {
    vec![
        Line::now(BEGIN),
        Line::at(Boundary::LeaseEnd, BEGIN),
        Line::now(BEGIN),
        Line::now(Act::Renew(Pick::Current)),
        Line::now(Act::Resolve(Pick::Current, How::Fail, Say::First)),
    ]
}

fn long() -> Vec<Line> {
    let mut lines = vec![Line::now(BEGIN)];
    lines.extend([Line::now(Act::Renew(Pick::Older)); REFUSED]);
    lines.push(Line::now(Act::Complete(Pick::Current, Say::First)));
    lines
}

fn kinds(run: &Run) -> Vec<NoteKind> {
    let stored = run.oracle.stored.iter();
    let notes = stored.flat_map(|stored| stored.timeline.notes());
    notes.map(|note| note.kind.clone()).collect()
}

fn ensure_resumed(run: &Run) -> Verdict {
    let expected = [
        NoteKind::Claimed(Owner::new("odd")),
        NoteKind::Checkpointed("charged".into()),
        NoteKind::TakenOver(Owner::new("even")),
        NoteKind::Refused(RefusedStep::Complete),
        NoteKind::GivenUp(UnknownReason::Dropped),
        NoteKind::TakenOver(Owner::new("odd")),
        NoteKind::Completed,
    ];
    ensure_eq!(kinds(run), expected, "the history of a resumed operation");
    Ok(())
}

fn ensure_held(run: &Run) -> Verdict {
    let (by, why) = (Resolver::operator("ada"), Why::new("the bank says so"));
    let expected = [
        NoteKind::Claimed(Owner::new("odd")),
        NoteKind::Held(UnknownReason::Lapsed),
        NoteKind::Refused(RefusedStep::Renew),
        NoteKind::Resolved(by, HowResolved::Failed, why),
    ];
    ensure_eq!(kinds(run), expected, "the history of a held operation");
    Ok(())
}

fn ensure_long(run: &Run) -> Verdict {
    let timeline = run.oracle.stored.as_ref().map(|stored| &stored.timeline);
    let Some(timeline) = timeline else {
        return Err(Deviation::new("the record is gone"));
    };
    let notes = timeline.notes();
    ensure_eq!(notes.len(), MAX_NOTES, "notes kept");
    let all = u32::try_from(REFUSED + 2 - MAX_NOTES)?;
    ensure_eq!(timeline.dropped(), all, "notes that made room");
    let first = notes.first().map(|note| &note.kind);
    let claimed = NoteKind::Claimed(Owner::new("odd"));
    ensure_eq!(first, Some(&claimed), "the first note");
    let last = notes.last().map(|note| &note.kind);
    ensure_eq!(last, Some(&NoteKind::Completed), "the last note");
    let stale = notes.iter().filter(|note| note.fence == Fence::NONE);
    ensure!(
        stale.count() == MAX_NOTES - 2,
        "the notes between: {notes:?}"
    );
    Ok(())
}
