//! Unknown operations, resolved by asking: what is asked when, and whose word counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::engine::{
    Begun, Probe, ProbeEnd, Probed, ProberSettings, Settlement, Unresolved,
};
use justonce_core::store::{Fault, Records};
use justonce_core::{
    BackOff, HowResolved, NoteKind, OnLapsed, Operation, Outcome, Owner, Resolution, Resolve,
    Resolver, StateName, Step, Token, UnknownReason, Why,
};
use tokio::sync::{Notify, Semaphore};

use crate::common::handlers::done;
use crate::common::world::{SECOND, World, breathe, named, pass, policy};

const MINUTE: Duration = Duration::from_secs(60);

fn settings() -> ProberSettings {
    let none = Duration::ZERO;
    ProberSettings { after: none, release_after: none, ..ProberSettings::new("books") }
}

fn why() -> Why {
    Why::new("it is in the books")
}

/// Operations that were begun and given up.
async fn unknown(world: &World, count: usize) -> Vec<Operation> {
    let mut operations = Vec::new();
    for number in 0..count {
        let operation = named(&format!("order-{number}"), policy(OnLapsed::Hold));
        let Ok(Begun::Claimed(mut claim)) = world.engine.begin(&operation).await else {
            panic!("it must be claimed");
        };
        let given_up = claim.abandon(UnknownReason::Reported).await.unwrap();
        assert_eq!(given_up, Settlement::Stored);
        operations.push(operation);
    }
    operations
}

/// How an operation was resolved, by the last note of its timeline.
async fn resolved(world: &World, operation: &Operation) -> Option<(Resolver, HowResolved)> {
    let stored = world.stored(operation).await?;
    match &stored.timeline.notes().last()?.kind {
        NoteKind::Resolved(by, how, _) => Some((by.clone(), *how)),
        _ => None,
    }
}

/// A probe that counts, and says the same to everybody.
fn saying(probed: Probed) -> (Arc<AtomicUsize>, impl Probe) {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let probe = move |_: Unresolved| {
        asked.fetch_add(1, Ordering::SeqCst);
        let probed = probed.clone();
        async move { probed }
    };
    (count, probe)
}

#[tokio::test(start_paused = true)]
async fn each_answer_resolves_in_its_own_way() {
    for (probed, state, how) in [
        (Probed::Happened(done(), why()), StateName::Completed, HowResolved::Completed),
        (Probed::Failed(done(), why()), StateName::Failed, HowResolved::Failed),
        (Probed::DidNotHappen(why()), StateName::Released, HowResolved::Released),
    ] {
        let world = World::new();
        let operations = unknown(&world, 3).await;
        let (_, probe) = saying(probed);
        let report = world.engine.probe_unknown(settings(), probe).await.unwrap();
        assert_eq!((report.found, report.asked, report.resolved), (3, 3, 3));
        for operation in &operations {
            assert_eq!(world.state(operation).await, state);
            let expected = (Resolver::probe("books"), how);
            assert_eq!(resolved(&world, operation).await, Some(expected));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_is_executed_by_the_next_begin() {
    let world = World::new();
    let operation = unknown(&world, 1).await.remove(0);
    let (_, probe) = saying(Probed::DidNotHappen(why()));
    let _ = world.engine.probe_unknown(settings(), probe).await.unwrap();
    let ran = world.engine.run(&operation, async |_| Ok(done())).await.unwrap();
    assert_eq!(ran, justonce_core::Ran::Executed(done()));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_too_early_or_about_others() {
    let world = World::new();
    let operation = unknown(&world, 1).await.remove(0);
    let busy = named("busy", policy(OnLapsed::Hold));
    let Ok(Begun::Claimed(_held)) = world.engine.begin(&busy).await else { panic!("claimed") };
    let (asked, probe) = saying(Probed::Happened(done(), why()));
    let patient = ProberSettings { after: MINUTE, ..settings() };
    let _prober = world.engine.start_prober(patient, probe);
    pass(50 * SECOND).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "something may still be on its way");
    pass(20 * SECOND).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(world.state(&operation).await, StateName::Completed);
    assert_eq!(world.state(&busy).await, StateName::InProgress);
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_claim_is_released_in_time_though_nobody_sweeps() {
    let world = World::new();
    let lapsing = named("lapsing", policy(OnLapsed::Hold).lease(SECOND));
    let begin = Step::begin(&lapsing, Owner::new("gone"), Token(1));
    let _ = world.store.apply(&begin).await.unwrap();
    let (asked, probe) = saying(Probed::DidNotHappen(why()));
    let _prober =
        world.engine.start_prober(ProberSettings { release_after: MINUTE, ..settings() }, probe);
    pass(30 * SECOND).await;
    assert!(asked.load(Ordering::SeqCst) > 0);
    assert_eq!(world.state(&lapsing).await, StateName::Unknown, "its lapse is written down");
    pass(20 * SECOND).await;
    assert_eq!(world.state(&lapsing).await, StateName::Unknown, "it is too early");
    pass(2 * MINUTE).await;
    let released = Some((Resolver::probe("books"), HowResolved::Released));
    assert_eq!(resolved(&world, &lapsing).await, released);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_yet_may_still_come() {
    let world = World::new();
    let operations = unknown(&world, 3).await;
    let probe = || saying(Probed::DidNotHappen(why())).1;
    let patient = || ProberSettings { release_after: MINUTE, ..settings() };
    let report = world.engine.probe_unknown(patient(), probe()).await.unwrap();
    assert_eq!((report.asked, report.resolved), (3, 0));
    pass(50 * SECOND).await;
    // It lapses now, and nobody writes that down.
    let lapsing = named("lapsing", policy(OnLapsed::Hold).lease(SECOND));
    let begin = Step::begin(&lapsing, Owner::new("gone"), Token(1));
    let _ = world.store.apply(&begin).await.unwrap();
    pass(10 * SECOND).await;
    let report = world.engine.probe_unknown(patient(), probe()).await.unwrap();
    assert_eq!((report.asked, report.resolved), (4, 3), "each by its own time");
    assert_eq!(world.state(&lapsing).await, StateName::Unknown, "written down, not released");
    for operation in &operations {
        let released = Some((Resolver::probe("books"), HowResolved::Released));
        assert_eq!(resolved(&world, operation).await, released);
    }
    // What happened counts at once.
    let late = named("late", policy(OnLapsed::Hold));
    let Ok(Begun::Claimed(mut claim)) = world.engine.begin(&late).await else { panic!("claimed") };
    let _ = claim.abandon(UnknownReason::Reported).await.unwrap();
    let (_, probe) = saying(Probed::Happened(done(), why()));
    let _ = world.engine.probe_unknown(patient(), probe).await.unwrap();
    assert_eq!(world.state(&late).await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn unclear_answers_panics_and_silence_are_asked_again_with_pauses() {
    for kind in 0..3 {
        let world = World::new();
        let operation = unknown(&world, 1).await.remove(0);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let probe = move |_: Unresolved| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                match kind {
                    0 => Probed::AskAgain,
                    1 => panic!("a probe must not panic"),
                    _ => std::future::pending().await,
                }
            }
        };
        let back_off = BackOff { first: 10 * SECOND, max: 80 * SECOND };
        let prober = ProberSettings { back_off, every: SECOND, timeout: SECOND, ..settings() };
        let _prober = world.engine.start_prober(prober, probe);
        // Pauses of at most 10, 20, 40 and 80 s, and at least half of that.
        pass(150 * SECOND).await;
        let times = asked.load(Ordering::SeqCst);
        assert!((4..=7).contains(&times), "{kind}: {times}");
        assert_eq!(world.state(&operation).await, StateName::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_sooner() {
    let world = World::new();
    let operation = unknown(&world, 1).await.remove(0);
    let (asked, probe) = saying(Probed::AskAgain);
    let back_off = BackOff { first: SECOND, max: 1000 * SECOND };
    let prober = ProberSettings { back_off, every: 10 * SECOND, ..settings() };
    let prober = world.engine.start_prober(prober, probe);
    pass(300 * SECOND).await;
    let before = asked.load(Ordering::SeqCst);
    prober.prioritize(operation.id());
    pass(3 * SECOND).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    for _ in 0..1000 {
        prober.prioritize(operation.id());
        breathe().await;
    }
    assert!(asked.load(Ordering::SeqCst) <= before + 3, "a loop of retries asks nobody");
}

#[tokio::test(start_paused = true)]
async fn questions_at_once_are_bounded() {
    let world = World::new();
    unknown(&world, 20).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let probe = {
        let (running, most, gate) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&gate));
        move |_: Unresolved| {
            let (running, most, gate) =
                (Arc::clone(&running), Arc::clone(&most), Arc::clone(&gate));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Probed::Happened(done(), why())
            }
        }
    };
    let _prober = world.engine.start_prober(ProberSettings { at_once: 3, ..settings() }, probe);
    breathe().await;
    assert_eq!(running.load(Ordering::SeqCst), 3);
    gate.add_permits(20);
    pass(SECOND).await;
    assert_eq!((most.load(Ordering::SeqCst), running.load(Ordering::SeqCst)), (3, 0));
}

/// A probe that hears what became of its questions.
struct Listening {
    told: Arc<Mutex<Vec<String>>>,
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Probe for Listening {
    async fn ask(&self, _: Unresolved) -> Probed {
        self.begun.notify_one();
        self.go_on.notified().await;
        Probed::Happened(Outcome::bytes("by the probe"), why())
    }

    fn ended(&self, _: &Unresolved, end: &ProbeEnd) {
        self.told.lock().unwrap().push(format!("{end:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_who_is_faster_counts() {
    let world = World::new();
    let operation = unknown(&world, 1).await.remove(0);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let probe =
        Listening { told: Arc::clone(&told), begun: Arc::clone(&begun), go_on: Arc::clone(&go_on) };
    let _prober = world.engine.start_prober(settings(), probe);
    begun.notified().await;
    let looked = world.engine.inspect(operation.id()).await.unwrap().unwrap();
    assert_eq!(looked.state(), StateName::Unknown);
    let by = Resolver::operator("ann");
    let resolve = Resolve { resolution: Resolution::Release, by: by.clone(), why: why() };
    let fence = looked.stored.entry.fence();
    let settled = world.engine.resolve(operation.id(), fence, resolve).await.unwrap();
    assert_eq!(settled, Settlement::Stored);
    go_on.notify_one();
    pass(SECOND).await;
    assert_eq!(*told.lock().unwrap(), ["Lost(Settled)"]);
    let stored = world.stored(&operation).await.unwrap();
    let resolutions = stored.timeline.notes().iter().filter_map(|note| match &note.kind {
        NoteKind::Resolved(by, how, _) => Some((by.clone(), *how)),
        _ => None,
    });
    assert_eq!(resolutions.collect::<Vec<_>>(), [(by, HowResolved::Released)]);
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_dies_between_answer_and_resolution_loses_nothing() {
    let world = World::new();
    let operation = unknown(&world, 1).await.remove(0);
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        world.faults.next("resolve", [fault]);
        let (asked, probe) = saying(Probed::Happened(done(), why()));
        let report = world.engine.probe_unknown(settings(), probe).await.unwrap();
        assert_eq!((report.asked, report.failed), (1, 1), "{fault:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
    // The last was applied although nobody heard of it: there is nothing left to ask.
    assert_eq!(world.state(&operation).await, StateName::Completed);
    let (asked, probe) = saying(Probed::DidNotHappen(why()));
    let report = world.engine.probe_unknown(settings(), probe).await.unwrap();
    assert_eq!((report.found, asked.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn many_probers_resolve_each_operation_once() {
    let (world, count) = (World::new(), 40);
    let operations = unknown(&world, count).await;
    let other = world.second();
    let (_, one) = saying(Probed::Happened(done(), why()));
    let (_, two) = saying(Probed::Happened(done(), why()));
    let (first, second) = tokio::join!(
        world.engine.probe_unknown(settings(), one),
        other.engine.probe_unknown(settings(), two)
    );
    assert_eq!((first.unwrap().failed, second.unwrap().failed), (0, 0));
    for operation in &operations {
        assert_eq!(world.state(operation).await, StateName::Completed);
        let stored = world.stored(operation).await.unwrap();
        let kinds = stored.timeline.notes().iter().map(|note| note.kind.as_str());
        assert_eq!(kinds.filter(|kind| *kind == "resolved").count(), 1);
    }
}
