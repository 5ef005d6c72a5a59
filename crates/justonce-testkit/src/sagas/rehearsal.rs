//! Goes through the cases.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::SharedStore;
use justonce_core::{Engine, ManualClock};

use super::case::Case;
use super::downstream::Downstream;
use super::mortal::Mortal;

/// How often an operation is asked for before it counts as one that never ends.
const PATIENCE: usize = 20;
/// Longer than every lease.
const LATER: Duration = Duration::from_secs(3600);

/// A case in which something went wrong that must not.
#[derive(Clone, Debug)]
pub struct Deviated {
    /// The case.
    pub case: Case,
    /// What went wrong.
    pub what: String,
}

impl fmt::Display for Deviated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.case, self.what)
    }
}

impl std::error::Error for Deviated {}

/// Goes through the cases, each with an operation of its own, and checks the ledger of each.
///
/// `run` begins the operation of this name or goes on with it, and says whether it is done
/// (`Some(true)`) or undone (`Some(false)`), or that it must be asked for again. It calls the
/// [`Downstream`] for each of `steps`. When the process dies, its future is dropped, the clock is
/// set forward until its claim has lapsed, and it is called again with a new engine. At the end it
/// is called once more, and must say the same without any effect.
///
/// # Errors
///
/// If an operation does not end, ends half done, or does anything twice.
pub async fn rehearse<R>(
    store: SharedStore,
    clock: &ManualClock,
    steps: &[&str],
    cases: impl IntoIterator<Item = Case>,
    run: R,
) -> Result<usize, Deviated>
where
    R: AsyncFn(Engine, String, Downstream) -> Option<bool>,
{
    let mut count = 0;
    for case in cases {
        count += 1;
        let downstream = Downstream::new(case.clone());
        let name = format!("rehearsal-{count}");
        let deviated = |what: String| Deviated { case: case.clone(), what };
        let done = one(&store, clock, &name, &downstream, &run).await.map_err(&deviated)?;
        if let Some(wrong) = downstream.wrong(steps, done) {
            return Err(deviated(wrong));
        }
        let engine = engine(store.clone());
        let again = run(engine, name, downstream.clone()).await;
        if again != Some(done) {
            return Err(deviated(format!("it ended with {done}, and a duplicate heard {again:?}")));
        }
        if let Some(wrong) = downstream.wrong(steps, done) {
            return Err(deviated(format!("after a duplicate: {wrong}")));
        }
    }
    Ok(count)
}

/// An engine whose background work ends with the rehearsal: those that die leave some behind.
fn engine(store: SharedStore) -> Engine {
    Engine::builder_shared(store).background(tokio::runtime::Handle::current()).build()
}

/// One operation to its end, through as many lives as it takes.
async fn one<R>(
    store: &SharedStore,
    clock: &ManualClock,
    name: &str,
    downstream: &Downstream,
    run: &R,
) -> Result<bool, String>
where
    R: AsyncFn(Engine, String, Downstream) -> Option<bool>,
{
    for _ in 0..PATIENCE {
        let mortal = Mortal::new(store.clone(), downstream.next_life());
        let engine = engine(Arc::new(mortal));
        let life = run(engine, name.to_owned(), downstream.clone());
        let ended = tokio::select! {
            ended = life => ended,
            () = downstream.died() => None,
        };
        if let Some(done) = ended {
            return Ok(done);
        }
        clock.advance(LATER);
    }
    Err(format!("it did not end in {PATIENCE} lives"))
}
