//! Books that a test writes, and operations in every state.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use justonce_core::engine::Begun;
use justonce_core::{
    Clock, Engine, Fence, HandlerError, Key, ManualClock, NoteKind, OnLapsed, Operation, Outcome,
    Policy, RecordId, Scope, StateName, Timestamp, UnknownReason,
};
use justonce_saga::{
    About, BookedEffect, BoxError, Disagreement, EffectPage, Effects, Finding, ReconcileReport,
    ReconcileSettings, Reconciler, Remedy,
};

use crate::ground::Ground;

/// What happens while somebody reads the books, right after they were read for the n-th time.
type Meanwhile = (usize, Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

/// Books in memory, with the clock of the test.
#[derive(Clone)]
pub(crate) struct Books(Arc<Inner>);

struct Inner {
    clock: ManualClock,
    effects: Mutex<Vec<(About, String, Timestamp)>>,
    asked: Mutex<usize>,
    meanwhile: Mutex<Option<Meanwhile>>,
    pub(crate) fails: Mutex<bool>,
}

impl Books {
    pub(crate) fn new(ground: &Ground) -> Self {
        Self(Arc::new(Inner {
            clock: ground.clock.clone(),
            effects: Mutex::default(),
            asked: Mutex::default(),
            meanwhile: Mutex::default(),
            fails: Mutex::default(),
        }))
    }

    /// An effect that happens now.
    pub(crate) fn book(&self, about: About, name: &str) {
        let now = self.0.clock.now();
        self.0.effects.lock().unwrap().push((about, name.to_owned(), now));
    }

    /// Something that happens right after the books were asked about operations this often.
    pub(crate) fn meanwhile<F>(&self, asked: usize, what: F)
    where
        F: Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        *self.0.meanwhile.lock().unwrap() = Some((asked, Box::new(what)));
    }

    pub(crate) fn fail(&self) {
        *self.0.fails.lock().unwrap() = true;
    }

    fn all(&self) -> Vec<BookedEffect> {
        let now = self.0.clock.now();
        let effects = self.0.effects.lock().unwrap();
        let effect = |(about, name, at): &(About, String, Timestamp)| BookedEffect {
            about: about.clone(),
            name: name.clone(),
            age: now.since(*at),
        };
        effects.iter().map(effect).collect()
    }
}

impl Effects for Books {
    async fn of(&self, asked: &[About]) -> Result<Vec<BookedEffect>, BoxError> {
        if *self.0.fails.lock().unwrap() {
            return Err("the books are closed".into());
        }
        let mut found = self.all();
        found.retain(|effect| asked.iter().any(|about| about.id == effect.about.id));
        let now = {
            let mut count = self.0.asked.lock().unwrap();
            *count += 1;
            *count
        };
        let what = {
            let meanwhile = self.0.meanwhile.lock().unwrap();
            meanwhile.as_ref().filter(|(when, _)| *when == now).map(|(_, what)| what())
        };
        if let Some(what) = what {
            what.await;
        }
        Ok(found)
    }

    async fn page(&self, after: Option<&str>, limit: usize) -> Result<EffectPage, BoxError> {
        let from: usize = after.map(str::parse).transpose()?.unwrap_or_default();
        let effects: Vec<BookedEffect> = self.all().into_iter().skip(from).take(limit).collect();
        let next = (effects.len() == limit).then(|| (from + limit).to_string());
        Ok(EffectPage { effects, next })
    }

    async fn outcome(&self, effect: &BookedEffect) -> Result<Option<Outcome>, BoxError> {
        let none = effect.name.starts_with("dumb");
        Ok((!none).then(|| Outcome::bytes(format!("made from {}", effect.name))))
    }

    async fn repair(&self, finding: &Finding) -> Result<Option<String>, BoxError> {
        match (finding.what, finding.effects.first()) {
            (Disagreement::Double, Some(first)) if first.name.starts_with("refund") => {
                Ok(Some(format!("{} paid back", finding.effects.len() - 1)))
            }
            (Disagreement::Missing, _) if finding.about.key.as_ref().unwrap().as_str() == "bad" => {
                Err("it cannot be booked".into())
            }
            _ => Ok(None),
        }
    }
}

pub(crate) fn about(name: &str) -> About {
    About::operation(scope(), Key::client(name).unwrap())
}

fn scope() -> Scope {
    Scope::builder().operation("charge").build().unwrap()
}

fn operation(name: &str, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder().on_lapsed(on_lapsed).build().unwrap();
    Operation::without_fingerprint(scope(), Key::client(name).unwrap()).with_policy(policy)
}

pub(crate) async fn completed(engine: &Engine, name: &str) {
    let operation = operation(name, OnLapsed::Hold);
    engine.run(&operation, async |_| Ok(Outcome::bytes("paid"))).await.unwrap();
}

pub(crate) async fn failed(engine: &Engine, name: &str) {
    let operation = operation(name, OnLapsed::Hold);
    engine.run(&operation, async |_| Err(HandlerError::permanent("no"))).await.unwrap();
}

/// An operation whose owner gave up; under `hold` it is unknown, under `resume` in progress.
pub(crate) async fn given_up(engine: &Engine, name: &str, on_lapsed: OnLapsed) -> Fence {
    let Begun::Claimed(mut claim) = engine.begin(&operation(name, on_lapsed)).await.unwrap() else {
        panic!("it must be claimed");
    };
    let fence = claim.fence();
    let _ = claim.abandon(UnknownReason::Reported).await.unwrap();
    fence
}

/// Everything that was found, in the order of the keys.
pub(crate) async fn reconcile(
    engine: &Engine,
    settings: ReconcileSettings,
    books: &Books,
) -> (Vec<(String, Disagreement, Remedy)>, ReconcileReport) {
    let mut found = Vec::new();
    let report = Reconciler::new(engine, settings, books.clone())
        .run(|finding, remedy| {
            let key = finding.about.key.as_ref().unwrap().as_str().to_owned();
            found.push((key, finding.what, remedy.clone()));
        })
        .await
        .unwrap();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    (found, report)
}

/// The state of a record, and how often and how it was resolved.
pub(crate) async fn state(engine: &Engine, id: RecordId) -> (StateName, Vec<String>) {
    let looked = engine.inspect(id).await.unwrap().unwrap();
    let resolved = looked.stored.timeline.notes().iter().filter_map(|note| match &note.kind {
        NoteKind::Resolved(by, how, why) => {
            Some(format!("{} {}: {}", by.name(), how.as_str(), why.as_str()))
        }
        _ => None,
    });
    (looked.state(), resolved.collect())
}
