//! Turns the chapters into tests.

use std::future::Future;
use std::time::Duration;

use justonce_core::StoreResult;

use super::backend::Backend;
use super::deviation::{Deviation, Verdict};

/// How many threads drive a store: more than many machines have cores, so that threads are also
/// interrupted in the middle of a step.
const THREADS: usize = 4;
/// When a chapter counts as stuck. The slowest takes seconds.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// Makes a backend and runs one chapter on it, in a runtime of its own.
///
/// # Errors
///
/// If the backend does not open, deviates, or gets stuck.
pub fn run<B, M, C>(make: impl FnOnce() -> M, chapter: impl FnOnce(B) -> C) -> Verdict
where
    B: Backend,
    M: Future<Output = StoreResult<B>>,
    C: Future<Output = Verdict>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_time()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let chapter = chapter(make().await?);
        match tokio::time::timeout(STUCK_AFTER, chapter).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Deviation::new(format!("stuck for {STUCK_AFTER:?}"))),
        }
    })
}

/// Runs the conformance suite: a module of this name with one test for each chapter. The
/// expression is called once for each of them and gives a future of a new, empty
/// [`Backend`](crate::conformance::Backend).
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "what the expression names may be elsewhere")]
            use super::*;

            $crate::conformance!(@chapters $make,
                every_case races_2 races_50 races_1000 duplicates fencing waiters dropped
                retention sweep listing stats timeline contents restart
            );
        }
    };
    (@chapters $make:expr, $($chapter:ident)*) => {
        $(
            #[test]
            fn $chapter() -> $crate::conformance::Verdict {
                $crate::conformance::run($make, $crate::conformance::$chapter)
            }
        )*
    };
}

/// Runs the chapters that take the paths of production: as [`conformance!`](crate::conformance!),
/// for a backend on the clock of the machine, such as an
/// [`OnSystemClock`](crate::conformance::OnSystemClock).
#[macro_export]
macro_rules! conformance_in_production {
    ($name:ident, $make:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "what the expression names may be elsewhere")]
            use super::*;

            $crate::conformance!(@chapters $make,
                at_once lapses reopened duplicates dropped contents
            );
        }
    };
}
