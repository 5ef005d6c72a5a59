//! Reads request bodies, within limits.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::{BoxError, WholeBody};
use crate::headers::remove_ours_from_trailers;
use crate::metrics::{
    BODY_BUDGET_LIMIT, BODY_BUDGET_REFUSALS, BODY_BUDGET_USED, BODY_BUDGET_WAITS,
};

/// The longest body that is read only to be discarded.
const MAX_DRAINED_BYTES: usize = 64 * 1024;
/// How long discarding a body may take.
const MAX_DRAIN: Duration = Duration::from_secs(1);
/// Bytes of all bodies in memory, beyond the free part of each. However small the limit of one
/// body, callers that never finish sending could otherwise fill the memory.
const MAX_BUDGET_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of each body that take nothing from the budget, so that large bodies do not delay the
/// small ones, which most are.
const FREE_BYTES: usize = 16 * 1024;
/// How long a body waits for the budget in all before its request is refused.
const MAX_BUDGET_WAIT: Duration = Duration::from_secs(5);

/// Why a request's body was not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is over the limit.
    TooLarge,
    /// The budget of the layer was used up by other bodies.
    OverBudget,
    /// It ended early or violated the protocol.
    Incomplete(BoxError),
}

/// Collects frames; a single frame is kept without copying.
#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    first: Bytes,
    rest: BytesMut,
}

impl BodyBuffer {
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&data);
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// The length of a body as its headers or the body itself declare it.
pub(crate) fn declared_length(headers: &HeaderMap, body: &impl Body) -> Option<u64> {
    let mut lines = headers.get_all(CONTENT_LENGTH).into_iter();
    let length = match (lines.next(), lines.next()) {
        (Some(line), None) if !headers.contains_key(TRANSFER_ENCODING) => {
            line.to_str().ok().and_then(|line| line.parse().ok())
        }
        _ => None,
    };
    length.or_else(|| body.size_hint().exact())
}

/// Reads a request's body whole.
pub(crate) async fn read_whole<B>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
    reservation: &mut Reservation,
) -> Result<WholeBody, ReadError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let declared = declared_length(headers, &body);
    if declared.unwrap_or_else(|| body.size_hint().lower()) > limit as u64 {
        return Err(ReadError::TooLarge);
    }
    let mut body = pin!(body);
    let mut buffer = BodyBuffer::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        // Frames are large: this one is dropped before the next await.
        let before = buffer.len();
        match body.frame().await {
            None => break,
            Some(Err(error)) => return Err(ReadError::Incomplete(error.into())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if before + data.len() > limit => return Err(ReadError::TooLarge),
                Ok(data) => buffer.push(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
        if !reservation.grow(buffer.len() - before).await {
            return Err(ReadError::OverBudget);
        }
    }
    if declared.is_some_and(|declared| declared != buffer.len() as u64) {
        return Err(ReadError::Incomplete("it is not as long as announced".into()));
    }
    trailers.as_mut().map(remove_ours_from_trailers);
    let trailers = trailers.filter(|trailers| !trailers.is_empty());
    Ok(WholeBody::new(buffer.into_bytes(), trailers))
}

/// Reads and discards a short body before its request is refused: some clients, above all with
/// HTTP/2, lose a response that arrives while they still send. With `Expect: 100-continue` the
/// body has not been sent and is not read.
pub(crate) async fn drain<B>(headers: &HeaderMap, body: B)
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let declared = declared_length(headers, &body);
    let is_long = declared.is_some_and(|size| size > MAX_DRAINED_BYTES as u64);
    if is_long || body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    let mut body = pin!(Limited::new(body, MAX_DRAINED_BYTES));
    // Piece by piece: what is discarded is in no budget, so it must not be held.
    let drain = async { while let Some(Ok(_)) = body.frame().await {} };
    // However it ends, the request is refused.
    let _ = timeout(MAX_DRAIN, drain).await;
}

/// Bounds the bytes of all request bodies that one layer holds.
#[derive(Clone)]
pub(crate) struct BodyBudget(Arc<Budget>);

struct Budget {
    free: Arc<Semaphore>,
    used: Gauge,
    waits: Counter,
    refusals: Counter,
}

impl Default for BodyBudget {
    fn default() -> Self {
        gauge!(BODY_BUDGET_LIMIT.name).set(MAX_BUDGET_BYTES as f64);
        let used = gauge!(BODY_BUDGET_USED.name);
        // The series is there from the start; another layer may have used some already.
        used.increment(0.0);
        let (waits, refusals) =
            (counter!(BODY_BUDGET_WAITS.name), counter!(BODY_BUDGET_REFUSALS.name));
        waits.increment(0);
        refusals.increment(0);
        let free = Arc::new(Semaphore::new(MAX_BUDGET_BYTES));
        Self(Arc::new(Budget { free, used, waits, refusals }))
    }
}

impl BodyBudget {
    /// The reservation of one body, empty at first.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { budget: Arc::clone(&self.0), permit: None, bytes: 0, deadline: None }
    }
}

impl fmt::Debug for BodyBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BodyBudget").field(&self.0.free.available_permits()).finish()
    }
}

/// The part of the budget that one body uses, returned on drop.
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
    /// When waiting ends, set by the first wait.
    deadline: Option<Instant>,
}

impl Reservation {
    /// Reserves more bytes; false if none became free in time.
    pub(crate) async fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        // A single body never needs more than the whole budget.
        let needed = self.bytes.saturating_sub(FREE_BYTES).min(MAX_BUDGET_BYTES);
        let missing = needed - self.reserved();
        let Some(missing) = u32::try_from(missing).ok().filter(|missing| *missing > 0) else {
            return true;
        };
        let more = match Arc::clone(&self.budget.free).try_acquire_many_owned(missing) {
            Ok(more) => Some(more),
            // Rare, and large: kept out of the future of every body.
            Err(_) => Box::pin(self.wait(missing)).await,
        };
        match (&mut self.permit, more) {
            (_, None) => {
                self.budget.refusals.increment(1);
                return false;
            }
            (Some(permit), Some(more)) => permit.merge(more),
            (None, more) => self.permit = more,
        }
        self.budget.used.increment(f64::from(missing));
        true
    }

    fn reserved(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    async fn wait(&mut self, missing: u32) -> Option<OwnedSemaphorePermit> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + MAX_BUDGET_WAIT);
        self.budget.waits.increment(1);
        let more = Arc::clone(&self.budget.free).acquire_many_owned(missing);
        timeout_at(deadline, more).await.ok()?.ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Most bodies have reserved nothing.
        if self.permit.is_some() {
            self.budget.used.decrement(self.reserved() as f64);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// A piece of a body that is counted as long as it is held.
    struct Piece {
        _counted: Arc<()>,
    }

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &[0; 1024]
        }
    }

    #[tokio::test]
    async fn what_is_drained_is_not_held() {
        let (pieces, most) = (Arc::new(()), AtomicUsize::new(0));
        let frames = (0..32).map(|_| {
            let piece = Piece { _counted: Arc::clone(&pieces) };
            most.fetch_max(Arc::strong_count(&pieces) - 1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(Bytes::from_owner(piece)))
        });
        drain(&HeaderMap::new(), StreamBody::new(stream::iter(frames))).await;
        assert_eq!(most.into_inner(), 1, "each piece is dropped before the next one is read");
    }

    #[tokio::test(start_paused = true)]
    async fn small_bodies_need_no_budget() {
        let budget = BodyBudget::default();
        let mut large = budget.reservation();
        assert!(large.grow(2 * MAX_BUDGET_BYTES).await, "one alone is never too large");
        assert!(large.grow(1).await);
        let mut small = budget.reservation();
        assert!(small.grow(FREE_BYTES).await);
        assert!(!small.grow(1).await, "nothing is left beyond that");
        drop(large);
        assert!(budget.reservation().grow(FREE_BYTES + 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_used_as_bodies_grow_and_is_returned() {
        let budget = BodyBudget::default();
        let mut reservations: Vec<_> = (0..4).map(|_| budget.reservation()).collect();
        for reservation in &mut reservations {
            assert!(
                reservation.grow(FREE_BYTES).await && reservation.grow(MAX_BUDGET_BYTES / 4).await
            );
        }
        assert_eq!(budget.0.free.available_permits(), 0);
        let waiting = async {
            let mut late = budget.reservation();
            late.grow(FREE_BYTES + 1).await
        };
        let (found, ()) = tokio::join!(waiting, async { drop(reservations) });
        assert!(found, "it waited");
        assert_eq!(budget.0.free.available_permits(), MAX_BUDGET_BYTES);
    }
}
