//! Many callers at once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::machine::now;

/// A runtime on both cores.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// How many calls of different slices are apart, so that no two get the same number.
const SLICE_NUMBERS: u64 = 1 << 32;

/// One thing to measure, in slices: it gets the number of the slice and its time, and says how
/// many calls a second there were.
pub(crate) type Candidate = Box<dyn Fn(u64, Duration) -> BoxedRate>;
type BoxedRate = Pin<Box<dyn Future<Output = Result<f64>>>>;

/// Makes a candidate of a call that gets the caller's number and the number of the call.
pub(crate) fn candidate<C, F>(callers: u64, call: C) -> Candidate
where
    C: Fn(u64, u64) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    Box::new(move |slice, time| {
        let call = call.clone();
        let first = slice * SLICE_NUMBERS;
        Box::pin(rate(callers, time, move |caller, number| call(caller, first + number)))
    })
}

/// The rates of all candidates, slice by slice in turn, so that all meet the same moods of the
/// machine. The first slice of each only warms up. Every other round goes backwards: what one
/// leaves behind for the disk to do is not always met by the same next one.
pub(crate) async fn in_turn(
    candidates: &[Candidate],
    slices: u64,
    time: Duration,
) -> Result<Vec<Vec<f64>>> {
    let mut rates = vec![Vec::new(); candidates.len()];
    for slice in 0..=slices {
        let mut round: Vec<_> = candidates.iter().zip(&mut rates).collect();
        if slice % 2 == 1 {
            round.reverse();
        }
        for (candidate, rates) in round {
            let rate = candidate(slice, time).await?;
            if slice > 0 {
                rates.push(rate);
            }
        }
    }
    Ok(rates)
}

/// Calls per second of `callers` tasks that each call in a row for `time`. The call gets the
/// caller's number and the number of the call.
pub(crate) async fn rate<C, F>(callers: u64, time: Duration, call: C) -> Result<f64>
where
    C: Fn(u64, u64) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let call = Arc::new(call);
    let start = now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let call = Arc::clone(&call);
            tokio::spawn(async move { calls(caller, start, time, &*call).await })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

async fn calls<C, F>(caller: u64, start: Instant, time: Duration, call: &C) -> Result<u64>
where
    C: Fn(u64, u64) -> F,
    F: Future<Output = Result<()>>,
{
    let mut number = 0;
    while start.elapsed() < time {
        call(caller, number).await?;
        number += 1;
        // Calls that never wait would keep the other callers of this thread from running.
        if number % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(number)
}

/// The value below which the given part of the samples lies.
pub(crate) fn percentile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a length is a length"
    )]
    let at = ((samples.len() as f64 * part) as usize).min(samples.len().saturating_sub(1));
    samples.get(at).copied().unwrap_or_default()
}
