//! Informational answers (1xx), written to an HTTP/1.1 client in front of its answer.
//!
//! The server behind a connection knows of final answers only, so these bytes are put between
//! those that it writes itself: before the first byte of an answer, and never inside one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};

/// How many bytes of informational answers may wait for one client; more are left out.
const MAX_WAITING_BYTES: usize = 64 * 1024;

/// The informational answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Early(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    // The request whose answer has not begun, counted from 1.
    open: Option<u64>,
    requests: u64,
    waiting: Vec<u8>,
    waker: Option<Waker>,
}

/// Where informational answers to one request go: an extension of requests from clients that
/// understand them.
#[derive(Clone)]
pub struct Informed {
    early: Arc<Early>,
    request: u64,
}

impl Early {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived.
    pub(super) fn begin(self: &Arc<Self>) -> Informed {
        let mut state = self.state();
        state.requests += 1;
        state.open = Some(state.requests);
        Informed { early: Arc::clone(self), request: state.requests }
    }

    /// Its answer is there: nothing more goes in front of it.
    pub(super) fn end(&self) {
        self.state().open = None;
    }

    /// What goes in front of the bytes that are about to be written, as far as the line takes it.
    /// `between` says that nothing before them is half written.
    pub(super) fn poll_write<E>(
        &self,
        between: bool,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&[u8], &mut Context<'_>) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<(), E>> {
        let mut state = self.state();
        if !between {
            if state.open.is_none() {
                // The answer may have begun among the bytes before: it is too late.
                state.waiting.clear();
            }
            return Poll::Ready(Ok(()));
        }
        while !state.waiting.is_empty() {
            match write(&state.waiting, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => state.waiting.clear(),
                Poll::Ready(Ok(count)) => drop(state.waiting.drain(..count)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the answer of the request under way has not begun. Its task is woken when there is
    /// something to write.
    pub(super) fn is_open(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if state.open.is_some() && !state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        state.open.is_some()
    }
}

impl Informed {
    /// Passes an informational answer on, unless the real one has begun.
    pub fn pass(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.early.state();
        if state.open != Some(self.request) {
            return;
        }
        let mut answer = format!("HTTP/1.1 {} ", status.as_u16()).into_bytes();
        answer.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        for (name, value) in headers {
            answer.extend_from_slice(b"\r\n");
            answer.extend_from_slice(name.as_str().as_bytes());
            answer.extend_from_slice(b": ");
            answer.extend_from_slice(value.as_bytes());
        }
        answer.extend_from_slice(b"\r\n\r\n");
        if state.waiting.len() + answer.len() > MAX_WAITING_BYTES {
            return;
        }
        state.waiting.extend_from_slice(&answer);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Informed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informed").field("request", &self.request).finish()
    }
}
