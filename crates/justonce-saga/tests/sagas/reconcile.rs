//! Each kind of finding, on every store; what changes while the job runs; crashes and failures.

use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{Fault, Faulty};
use justonce_core::{
    Action, Engine, OnLapsed, Outcome, Resolution, Resolve, Resolver, StateName, Step, Why,
};
use justonce_saga::Disagreement::{
    Double, Missing, Orphan, Unfinished, UnknownDone, UnknownUndone,
};
use justonce_saga::{ReconcileError, ReconcilePosition, ReconcileSettings, Reconciler, Remedy};

use crate::ground::{Ground, on_every_store};
use crate::reconcile_stage::{Books, about, completed, failed, given_up, reconcile, state};

/// Small pages, so that there are many; what is not in the books after half an hour is released.
fn settings() -> ReconcileSettings {
    ReconcileSettings {
        page: 2,
        release_after: Some(Duration::from_secs(1800)),
        ..ReconcileSettings::new("ledger")
    }
}

/// Operations in every state, with and without effects, all of them an hour old.
async fn scene(ground: &Ground, books: &Books) {
    let engine = ground.engine();
    books.book(about("forgotten"), "receipt 0");
    ground.clock.advance(Duration::from_secs(25 * 3600));
    for name in ["agreed", "double", "missing", "bad", "refunded"] {
        completed(&engine, name).await;
    }
    failed(&engine, "failed").await;
    failed(&engine, "failed-and-there").await;
    given_up(&engine, "resumed", OnLapsed::Resume).await;
    given_up(&engine, "resumed-and-there", OnLapsed::Resume).await;
    for name in ["unknown", "unknown-and-there", "unknown-twice", "unknown-and-dumb"] {
        given_up(&engine, name, OnLapsed::Hold).await;
    }
    for (number, name) in [
        "orphan",
        "agreed",
        "double",
        "failed-and-there",
        "resumed-and-there",
        "unknown-and-there",
        "unknown-twice",
        "double",
        "unknown-twice",
        "orphan",
    ]
    .into_iter()
    .enumerate()
    {
        books.book(about(name), &format!("receipt {}", number + 1));
    }
    books.book(about("unknown-and-dumb"), "dumb 1");
    books.book(about("refunded"), "refund 1");
    books.book(about("refunded"), "refund 2");
    ground.much_later();
    // Younger than the grace: nothing is said of them.
    completed(&engine, "young").await;
    books.book(about("young-orphan"), "receipt 99");
}

async fn each_kind_is_found(ground: Ground) {
    let (books, engine) = (Books::new(&ground), ground.engine());
    scene(&ground, &books).await;
    let (found, report) = reconcile(&engine, settings(), &books).await;
    let there = about("unknown-and-there").id;
    let expected = [
        ("bad", Missing, Remedy::Failed("it cannot be booked".into())),
        ("double", Double, Remedy::Reported),
        ("failed-and-there", Orphan, Remedy::Reported),
        ("missing", Missing, Remedy::Reported),
        ("orphan", Orphan, Remedy::Reported),
        ("refunded", Double, Remedy::Repaired("1 paid back".into())),
        ("resumed-and-there", Unfinished, Remedy::Reported),
        ("unknown", UnknownUndone, Remedy::Released),
        ("unknown-and-dumb", UnknownDone, Remedy::Reported),
        ("unknown-and-there", UnknownDone, Remedy::Completed),
        ("unknown-twice", Double, Remedy::Reported),
    ];
    let expected = expected.map(|(key, what, remedy)| (key.to_owned(), what, remedy));
    assert_eq!(found, expected);
    assert_eq!((report.records, report.effects), (13, 15));
    assert_eq!((report.found, report.repaired, report.failed, report.gone), (11, 3, 1, 0));
    // Who and why are in the timelines, and the callers hear the outcome.
    let why = "ledger completed: its effect receipt 6 is there".to_owned();
    assert_eq!(state(&engine, there).await, (StateName::Completed, vec![why]));
    let why = "ledger released: no effect is there after 1800 s".to_owned();
    assert_eq!(state(&engine, about("unknown").id).await, (StateName::Released, vec![why]));
    // What was repaired is not found again, and what was reported is.
    let (again, _) = reconcile(&engine, settings(), &books).await;
    let repaired = |remedy: &Remedy| matches!(remedy, Remedy::Released | Remedy::Completed);
    let left: Vec<_> = expected.into_iter().filter(|(_, _, remedy)| !repaired(remedy)).collect();
    assert_eq!(again, left);
}

on_every_store!(each_kind_is_found:
    each_kind_on_memory each_kind_on_embedded each_kind_on_redis each_kind_on_postgres);

/// An operator who says that it happened, while the job is between two looks.
fn completes(engine: &Engine, books: &Books, asked: usize, fence: justonce_core::Fence) {
    let (engine, book) = (engine.clone(), books.clone());
    books.meanwhile(asked, move || {
        let (engine, book) = (engine.clone(), book.clone());
        Box::pin(async move {
            book.book(about("late"), "receipt 1");
            let resolution = Resolution::Complete(Outcome::bytes("paid after all"));
            let by = Resolver::operator("ann");
            let resolve = Resolve { resolution, by, why: Why::new("she has the receipt") };
            let _ = engine.resolve(about("late").id, fence, resolve).await.unwrap();
        })
    });
}

/// It ends after the job has seen it unknown and without an effect: it must not be released.
async fn what_ends_meanwhile_is_left_alone(ground: Ground) {
    // First between the two looks, then after the second one.
    for (asked, found) in [(1, vec![]), (2, vec![("late".to_owned(), UnknownUndone, Remedy::Lost)])]
    {
        let books = Books::new(&ground);
        let engine = ground.engine();
        let name = about("late");
        if asked == 2 {
            // The first round left it completed; a day later it is forgotten.
            ground.clock.advance(Duration::from_secs(25 * 3600));
            while engine.store().sweep(100).await.unwrap().more {}
        }
        let fence = given_up(&engine, "late", OnLapsed::Hold).await;
        ground.much_later();
        completes(&engine, &books, asked, fence);
        // At once, so that nothing but the fence is left to refuse it.
        let settings = ReconcileSettings { release_after: Some(Duration::ZERO), ..settings() };
        let (told, report) = reconcile(&engine, settings, &books).await;
        assert_eq!(told, found);
        assert_eq!(report.gone, u64::from(asked == 1));
        let why = "ann completed: she has the receipt".to_owned();
        assert_eq!(state(&engine, name.id).await, (StateName::Completed, vec![why]));
    }
}

on_every_store!(what_ends_meanwhile_is_left_alone:
    meanwhile_on_memory meanwhile_on_embedded meanwhile_on_redis meanwhile_on_postgres);

/// Ten unknown operations, five of them with their effect, and two nodes at once.
async fn two_nodes_at_once(ground: Ground) {
    let books = Books::new(&ground);
    let nodes = [ground.engine(), ground.engine()];
    for number in 0..10 {
        let name = format!("order-{number}");
        given_up(&nodes[0], &name, OnLapsed::Hold).await;
        if number % 2 == 0 {
            books.book(about(&name), &format!("receipt {number}"));
        }
    }
    ground.much_later();
    let ((one, _), (two, _)) = tokio::join!(
        reconcile(&nodes[0], settings(), &books),
        reconcile(&nodes[1], settings(), &books)
    );
    assert!(one.len() + two.len() >= 10, "{one:?} {two:?}");
    for number in 0..10 {
        let (state, resolved) = state(&nodes[0], about(&format!("order-{number}")).id).await;
        let expected = if number % 2 == 0 { StateName::Completed } else { StateName::Released };
        assert_eq!((state, resolved.len()), (expected, 1), "{resolved:?}");
    }
}

on_every_store!(two_nodes_at_once:
    two_reconcile_on_memory two_reconcile_on_embedded
    two_reconcile_on_redis two_reconcile_on_postgres);

#[tokio::test]
async fn a_crash_between_repair_and_report_repairs_nothing_twice() {
    let ground = Ground::memory();
    let (books, engine) = (Books::new(&ground), ground.engine());
    given_up(&engine, "order-1", OnLapsed::Hold).await;
    books.book(about("order-1"), "receipt 1");
    ground.much_later();
    let job = Reconciler::new(&engine, settings(), books.clone());
    let crashed = tokio::spawn(async move {
        let _ = job.run(|_, remedy| panic!("dies before it tells of {remedy:?}")).await;
    });
    assert!(crashed.await.unwrap_err().is_panic());
    let (found, report) = reconcile(&engine, settings(), &books).await;
    assert_eq!((found, report.repaired), (vec![], 0));
    let why = "ledger completed: its effect receipt 1 is there".to_owned();
    assert_eq!(
        state(&engine, about("order-1").id).await.1,
        [why],
        "nobody was told, but it is kept"
    );
}

#[tokio::test]
async fn books_that_cannot_be_read_are_not_empty_books() {
    let ground = Ground::memory();
    let (books, engine) = (Books::new(&ground), ground.engine());
    given_up(&engine, "order-1", OnLapsed::Hold).await;
    ground.much_later();
    books.fail();
    let job = Reconciler::new(&engine, settings(), books);
    let ran = job.run(|finding, _| panic!("{finding:?}")).await;
    assert!(matches!(ran, Err(ReconcileError::Effects(_))), "{ran:?}");
    assert_eq!(state(&engine, about("order-1").id).await.0, StateName::Unknown);
}

#[tokio::test]
async fn what_is_unknown_for_too_short_a_time_is_not_released() {
    let ground = Ground::memory();
    let (books, engine) = (Books::new(&ground), ground.engine());
    given_up(&engine, "order-1", OnLapsed::Hold).await;
    ground.clock.advance(Duration::from_secs(1200));
    for (release_after, remedy) in
        [(Some(Duration::from_secs(1800)), Remedy::TooEarly), (None, Remedy::Reported)]
    {
        let settings = ReconcileSettings { release_after, ..settings() };
        let (found, report) = reconcile(&engine, settings, &books).await;
        assert_eq!(found, [("order-1".to_owned(), UnknownUndone, remedy)]);
        assert_eq!(report.repaired, 0);
    }
}

#[tokio::test]
async fn a_run_goes_on_where_it_was() {
    let ground = Ground::memory();
    let (books, engine) = (Books::new(&ground), ground.engine());
    scene(&ground, &books).await;
    let job = Reconciler::new(&engine, settings(), books.clone());
    let (mut place, mut found, mut pages) = (Some(ReconcilePosition::default()), 0, 0);
    while let Some(here) = place {
        // Each page by a process of its own.
        let (report, next) = job.page(here, |_, _| {}).await.unwrap();
        (place, found, pages) = (next, found + report.found, pages + 1);
    }
    assert_eq!(found, 11);
    assert!(pages >= 15, "{pages}");
}

#[tokio::test]
async fn a_repair_whose_reply_is_lost_is_told_as_failed_and_not_done_twice() {
    let ground = Ground::memory();
    let store = Faulty::new(MemoryStore::new(ground.clock.clone()), |step: &Step| {
        let resolves = matches!(step.action, Action::Resolve(..));
        if resolves { Fault::LostReply } else { Fault::None }
    });
    let (books, engine) = (Books::new(&ground), Engine::new(store));
    given_up(&engine, "order-1", OnLapsed::Hold).await;
    ground.much_later();
    let (found, report) = reconcile(&engine, settings(), &books).await;
    assert!(matches!(found[..], [(_, UnknownUndone, Remedy::Failed(_))]), "{found:?}");
    assert_eq!((report.failed, report.repaired), (1, 0));
    assert_eq!(reconcile(&engine, settings(), &books).await.0, []);
    assert_eq!(state(&engine, about("order-1").id).await.1.len(), 1);
}
