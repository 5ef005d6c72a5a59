//! Informational responses (1xx), forwarded to HTTP/1.1 clients.
//!
//! The HTTP server of a connection writes final responses only. Informational ones are put
//! between its bytes: before the first byte of a response, never inside one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};

/// How many bytes of informational responses are queued for one client; more are left out.
const MAX_QUEUED_BYTES: usize = 64 * 1024;

/// The informational responses of one connection that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct InformationalQueue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    // The request whose response has not begun, counted from 1.
    open: Option<u64>,
    requests: u64,
    queued: Vec<u8>,
    waker: Option<Waker>,
}

/// Sends informational responses to one request: an extension of requests from clients that
/// understand them.
#[derive(Clone)]
pub struct InformationalSender {
    queue: Arc<InformationalQueue>,
    request: u64,
}

impl InformationalQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InformationalSender {
        let mut state = self.state();
        state.requests += 1;
        state.open = Some(state.requests);
        InformationalSender { queue: Arc::clone(self), request: state.requests }
    }

    /// Its response begins: nothing more goes in front of it.
    pub(crate) fn begin_response(&self) {
        self.state().open = None;
    }

    /// Writes what is queued, as far as the socket takes it. `between` says that everything
    /// written before is complete.
    pub(crate) fn poll_write<E>(
        &self,
        between: bool,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&[u8], &mut Context<'_>) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<(), E>> {
        let mut state = self.state();
        if !between {
            if state.open.is_none() {
                // The response may have begun among the bytes before: it is too late.
                state.queued.clear();
            }
            return Poll::Ready(Ok(()));
        }
        while !state.queued.is_empty() {
            match write(&state.queued, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => state.queued.clear(),
                Poll::Ready(Ok(count)) => drop(state.queued.drain(..count)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether a response has not begun. If so, the task is woken when something is queued.
    pub(crate) fn is_open(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if state.open.is_some() && !state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        state.open.is_some()
    }
}

impl InformationalSender {
    /// Queues an informational response, unless the final one has begun.
    pub fn send(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.queue.state();
        if state.open != Some(self.request) {
            return;
        }
        let mut head = format!("HTTP/1.1 {} ", status.as_u16()).into_bytes();
        head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        for (name, value) in headers {
            head.extend_from_slice(b"\r\n");
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
        }
        head.extend_from_slice(b"\r\n\r\n");
        if state.queued.len() + head.len() > MAX_QUEUED_BYTES {
            return;
        }
        state.queued.extend_from_slice(&head);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for InformationalSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformationalSender").field("request", &self.request).finish()
    }
}
