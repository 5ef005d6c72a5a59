//! A process: an engine on its own connection, and the callers in it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use justonce_core::Engine;
use justonce_core::Entropy;
use justonce_core::engine::Limits;
use justonce_core::store::{Cached, Retry, RetryPolicy, SharedStore, Timeout};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::base::Base;
use crate::draw::Draw;
use crate::network::{Network, Shared, Weather};
use crate::plan::{Calls, Plan, Stack};

/// One life of a process.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) process: usize,
    pub(crate) number: u32,
    pub(crate) engine: Engine,
    network: Arc<Shared>,
    gate: Arc<Gate>,
    callers: Mutex<Vec<AbortHandle>>,
}

/// Lets tasks go on, or not: the callers' runtime of a process.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Life {
    pub(crate) fn start(
        plan: &Plan,
        weather: &Arc<Weather>,
        base: &Arc<dyn Base>,
        process: usize,
        number: u32,
    ) -> Arc<Self> {
        let (network, shared) = Network::new(weather, base, process, number);
        let draw = Draw::keyed(plan.seed, &[3, process as u64, u64::from(number)]);
        let store = layered(network, plan.stack, draw.seed());
        let limits = Limits {
            max_concurrent: plan.max_concurrent,
            settle_timeout: plan.settle_timeout,
            ..Limits::default()
        };
        let engine = Engine::builder_shared(store)
            .owner(&format!("process {process}, life {number}"))
            .entropy(Entropy::seeded(draw.seed()))
            .limits(limits)
            .background(Handle::current())
            .build();
        Arc::new(Self {
            process,
            number,
            engine,
            network: shared,
            gate: Arc::default(),
            callers: Mutex::default(),
        })
    }

    /// Whether it has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.network.is_cut()
    }

    /// Dies: nothing that its futures do when they are dropped reaches the store.
    pub(crate) fn crash(&self) {
        self.network.cut();
        for caller in self.callers().drain(..) {
            caller.abort();
        }
        // What is aborted must be polled once more to be dropped.
        self.gate.open();
    }

    pub(crate) fn partition(&self, cut: bool) {
        self.network.partition(cut);
    }

    /// The callers' runtime stands still, or goes on.
    pub(crate) fn stall(&self, stands: bool) {
        if stands { self.gate.close() } else { self.gate.open() }
    }

    /// Runs a caller.
    pub(crate) fn spawn(&self, caller: impl Future<Output = ()> + Send + 'static) {
        let gated = Gated { gate: Arc::clone(&self.gate), inner: Box::pin(caller) };
        self.callers().push(tokio::spawn(gated).abort_handle());
    }

    fn callers(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layers that ship, in front of a network.
fn layered(network: Network, stack: Stack, seed: u64) -> SharedStore {
    let entropy = Arc::new(Entropy::seeded(seed));
    let tries = RetryPolicy::default();
    match (stack.calls, stack.near_cache) {
        (Calls::Bare, false) => Arc::new(network),
        (Calls::Bare, true) => Arc::new(Cached::near(network)),
        (Calls::RetryOverTimeout(limit), cached) => {
            let store = Retry::new(Timeout::new(network, limit), tries, entropy);
            if cached { Arc::new(Cached::near(store)) } else { Arc::new(store) }
        }
        (Calls::TimeoutOverRetry(limit), cached) => {
            let store = Timeout::new(Retry::new(network, tries, entropy), limit);
            if cached { Arc::new(Cached::near(store)) } else { Arc::new(store) }
        }
    }
}

impl Gate {
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain(..).for_each(Waker::wake);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// A task behind a gate.
struct Gated {
    gate: Arc<Gate>,
    inner: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.gate.is_closed() {
            let mut waiting = self.gate.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        self.inner.as_mut().poll(context)
    }
}
