//! The suite is worth something only if it finds what is wrong: here are stores with one defect
//! each, and the chapter that must find it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::store::{
    Cursor, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport,
};
use justonce_core::{
    Action, Answer, Change, ClaimEnd, Clock, Fence, ManualClock, RecordId, Step, StoreResult,
    SweepDone, Timestamp, codec, ends_claim, is_running, transition,
};
use tokio::sync::Notify;

use super::{Backend, OnManualClock, Survival, Verdict};

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    IgnoresFences,
    ForgetsRefusals,
    RepeatsFences,
    ClockIsLate,
    BeginIsNotAtomic,
    ReleaseWakesNobody,
    RenewalWakes,
    SweepsUnknown,
    IgnoresLimits,
    RepeatsTheCursor,
    CountsWrong,
    ReplaysExtend,
    CutsBodies,
    TimelineStartsAnew,
}

/// A plain store, right but for its defect.
struct Plain {
    clock: ManualClock,
    defect: Defect,
    fences: AtomicU64,
    records: Mutex<BTreeMap<RecordId, Stored>>,
    changed: Notify,
}

impl Plain {
    fn new(clock: ManualClock, defect: Defect, records: BTreeMap<RecordId, Stored>) -> Self {
        Self {
            clock,
            defect,
            fences: AtomicU64::new(0),
            records: Mutex::new(records),
            changed: Notify::new(),
        }
    }

    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        match self.defect {
            Defect::ClockIsLate => Timestamp::from_millis(now.as_millis() - 1),
            _ => now,
        }
    }

    /// The action as the defect understands it.
    fn understood(&self, action: &Action, current: Option<Fence>) -> Action {
        let mut action = action.clone();
        match (self.defect, &mut action, current) {
            (
                Defect::IgnoresFences,
                Action::Complete(fence, _) | Action::Renew(fence),
                Some(current),
            ) => *fence = current,
            (Defect::CutsBodies, Action::Complete(_, outcome), _) => {
                let body = outcome.body().unwrap_or_default();
                let cut = body.len().min(1 << 20);
                *outcome = justonce_core::Outcome::bytes(body[..cut].to_vec());
            }
            _ => {}
        }
        action
    }

    fn step(&self, id: RecordId, action: &Action, before: Option<Stored>) -> Answer {
        let fresh = match self.defect {
            Defect::RepeatsFences => Fence::NONE,
            _ => Fence::new(self.fences.fetch_add(1, Ordering::SeqCst) + 1),
        };
        let entry = before.as_ref().map(|stored| &stored.entry);
        let action = self.understood(action, entry.map(justonce_core::Entry::fence));
        let mut decision = transition(entry, &action, self.now(), fresh);
        if self.defect == Defect::ForgetsRefusals && decision.change == Change::Keep {
            decision.note = None;
        }
        let ended = match (&decision.change, entry) {
            (Change::Put(after), Some(before)) => ends_claim(before, Some(after)),
            (Change::Remove, Some(before)) => ends_claim(before, None),
            _ => false,
        };
        let wakes = match (self.defect, &action) {
            (Defect::ReleaseWakesNobody, Action::Release(_)) => false,
            (Defect::RenewalWakes, Action::Renew(_)) => true,
            _ => ended,
        };
        let anew = self.defect == Defect::TimelineStartsAnew
            && matches!(&decision.change, Change::Put(_))
            && matches!(&decision.answer, Answer::Claimed(_));
        let (after, answer) = decision.carry_out(before.filter(|_| !anew));
        let mut records = self.records.lock().unwrap();
        match after {
            Some(stored) => records.insert(id, stored),
            None => records.remove(&id),
        };
        drop(records);
        if wakes {
            self.changed.notify_waiters();
        }
        answer
    }

    fn read(&self, id: &RecordId) -> Option<Stored> {
        self.records.lock().unwrap().get(id).cloned()
    }
}

impl Records for Plain {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        if self.defect == Defect::BeginIsNotAtomic {
            let before = self.read(&step.id);
            tokio::task::yield_now().await;
            return Ok(self.step(step.id, &step.action, before));
        }
        let answer = self.step(step.id, &step.action, self.read(&step.id));
        if self.defect == Defect::ReplaysExtend
            && let Some(stored) = self.records.lock().unwrap().get_mut(&step.id)
            && let justonce_core::Entry::Record(record) = &mut stored.entry
            && let justonce_core::State::Completed(settled) = &mut record.state
        {
            settled.expires_at = settled.expires_at.after(Duration::from_millis(1));
        }
        Ok(answer)
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        Ok(self.read(id))
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        loop {
            let mut woken = std::pin::pin!(self.changed.notified());
            woken.as_mut().enable();
            let stored = self.read(id);
            if !stored.is_some_and(|stored| is_running(&stored.entry, fence, self.now())) {
                return Ok(None);
            }
            woken.await;
            if self.defect == Defect::RenewalWakes {
                return Ok(None);
            }
        }
    }
}

impl Maintenance for Plain {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let records = self.records.lock().unwrap();
        let repeats = self.defect == Defect::RepeatsTheCursor;
        let mut page = Page::default();
        for (id, stored) in records.iter() {
            let is_new =
                query.after.is_none_or(|Cursor(after)| *id > after || repeats && *id == after);
            let Some(summary) = query.matches(*id, &stored.entry, self.now()).filter(|_| is_new)
            else {
                continue;
            };
            if page.records.len() == query.page_size() {
                page.next = page.records.last().map(|last| Cursor(last.id));
                break;
            }
            page.records.push(summary);
        }
        Ok(page)
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let mut stats = Stats::default();
        for (id, stored) in self.records.lock().unwrap().iter() {
            let state = match self.defect {
                Defect::CountsWrong => justonce_core::state_at(&stored.entry, self.now()),
                _ => stored.entry.state_name(),
            };
            stats.add(state, codec::encode(id, stored).len() as u64);
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let mut report = SweepReport::default();
        let ids: Vec<RecordId> = self.records.lock().unwrap().keys().copied().collect();
        for id in ids {
            let before = self.read(&id);
            let entry = before.as_ref().map(|stored| &stored.entry);
            let is_unknown =
                entry.is_some_and(|entry| entry.state_name() == justonce_core::StateName::Unknown);
            if self.defect == Defect::SweepsUnknown && is_unknown {
                self.records.lock().unwrap().remove(&id);
                continue;
            }
            let due = transition(entry, &Action::Sweep, self.now(), Fence::NONE);
            if due.answer == Answer::Swept(SweepDone::Kept) {
                continue;
            }
            let done = report.changed();
            if done >= limit as u64 && self.defect != Defect::IgnoresLimits {
                report.more = true;
                break;
            }
            if let Answer::Swept(done) = self.step(id, &Action::Sweep, before) {
                report.count(id, done);
            }
        }
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }
}

async fn plain(defect: Defect, survival: Survival) -> impl Backend<Store = Plain> {
    let open = move |clock| async move { Ok(Plain::new(clock, defect, BTreeMap::new())) };
    OnManualClock::open(survival, open).await.unwrap()
}

/// Runs a chapter in virtual time, so that a waiter that is never woken costs nothing.
fn verdict<B: Backend, C: Future<Output = Verdict>>(
    backend: impl Future<Output = B>,
    chapter: impl FnOnce(B) -> C,
) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { chapter(backend.await).await })
}

/// Asserts that a chapter finds a defect and reports it.
macro_rules! finds {
    ($chapter:ident, $defect:ident, $message:literal) => {{
        let wrong = plain(Defect::$defect, Survival::Nothing);
        let found = verdict(wrong, super::$chapter).unwrap_err().to_string();
        assert!(found.contains($message), "{found}");
    }};
}

/// The defects are found, not the store around them.
#[test]
fn a_store_without_a_defect_passes() {
    macro_rules! passes {
        ($($chapter:ident)*) => {
            $(verdict(plain(Defect::None, Survival::Nothing), super::$chapter).unwrap();)*
        };
    }
    passes!(every_case races_2 races_50 duplicates fencing waiters dropped retention);
    passes!(sweep listing stats timeline contents restart);
}

#[test]
fn every_case_finds_a_late_clock() {
    finds!(every_case, ClockIsLate, "scripts went another way");
}

#[test]
fn every_case_finds_repeated_fences() {
    finds!(every_case, RepeatsFences, "given before");
}

#[test]
fn fencing_finds_ignored_fences() {
    finds!(fencing, IgnoresFences, "complete with fence");
}

#[test]
fn fencing_finds_forgotten_refusals() {
    finds!(fencing, ForgetsRefusals, "left Timeline");
}

#[test]
fn fencing_finds_repeated_fences() {
    finds!(fencing, RepeatsFences, "after a release");
}

#[test]
fn races_find_a_begin_in_two_steps() {
    finds!(races_2, BeginIsNotAtomic, "2 callers got the claim");
}

#[test]
fn duplicates_find_a_begin_in_two_steps() {
    finds!(duplicates, BeginIsNotAtomic, "ran 16 times");
}

#[test]
fn waiters_find_a_lost_wake_up() {
    finds!(waiters, ReleaseWakesNobody, "100 of 100 waiters");
}

#[test]
fn waiters_find_a_wake_up_too_many() {
    finds!(waiters, RenewalWakes, "a renewal woke");
}

#[test]
fn retention_finds_replays_that_extend_it() {
    finds!(retention, ReplaysExtend, "free");
}

#[test]
fn retention_and_sweep_find_what_must_not_be_swept() {
    finds!(retention, SweepsUnknown, "unknown for ten years");
    finds!(sweep, SweepsUnknown, "kept: None");
}

#[test]
fn sweep_finds_an_ignored_limit() {
    finds!(sweep, IgnoresLimits, "a sweep of no records");
}

#[test]
fn listing_finds_a_record_listed_twice() {
    finds!(listing, RepeatsTheCursor, "ListQuery");
}

#[test]
fn stats_find_a_wrong_count() {
    finds!(stats, CountsWrong, "the number of records");
}

#[test]
fn timeline_finds_a_shortened_history() {
    finds!(timeline, TimelineStartsAnew, "kept the notes");
}

#[test]
fn contents_find_a_cut_body() {
    finds!(contents, CutsBodies, "was replayed as");
}

#[test]
fn restart_finds_a_store_that_forgets() {
    let forgetful = plain(Defect::None, Survival::Durable);
    let found = verdict(forgetful, super::restart).unwrap_err().to_string();
    assert!(found.contains("after a restart"), "{found}");
}

#[test]
fn restart_finds_fences_that_begin_anew() {
    let found = verdict(sharing(|_| 0), super::restart).unwrap_err();
    assert!(found.to_string().contains("given before"), "{found}");
}

#[test]
fn a_store_that_survives_passes() {
    verdict(sharing(|opened| opened << 32), super::restart).unwrap();
}

/// A store that survives by handing its records to the next one. Its fences begin where `first`
/// says for so many times that it was opened.
async fn sharing(first: fn(u64) -> u64) -> impl Backend {
    let records: Arc<Mutex<BTreeMap<RecordId, Stored>>> = Arc::default();
    let opened = Arc::new(AtomicU64::new(0));
    let open = move |clock| {
        let kept = Arc::clone(&records);
        let opened = opened.fetch_add(1, Ordering::SeqCst);
        async move {
            let records = kept.lock().unwrap().clone();
            let plain = Plain::new(clock, Defect::None, records);
            plain.fences.store(first(opened), Ordering::SeqCst);
            Ok(Sharing { plain, kept })
        }
    };
    OnManualClock::open(Survival::Durable, open).await.unwrap()
}

struct Sharing {
    plain: Plain,
    kept: Arc<Mutex<BTreeMap<RecordId, Stored>>>,
}

impl Drop for Sharing {
    fn drop(&mut self) {
        *self.kept.lock().unwrap() = std::mem::take(&mut self.plain.records.lock().unwrap());
    }
}

impl Records for Sharing {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.plain.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.plain.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.plain.settled(id, fence).await
    }
}

impl Maintenance for Sharing {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.plain.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.plain.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.plain.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.plain.ready().await
    }
}
