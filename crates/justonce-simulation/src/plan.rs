//! What happens in one run, drawn from its seed: who calls what and when, what goes wrong.
//!
//! A run does the same with the same plan, and parts of a plan can be left out: so a failure is
//! made smaller.

use std::time::Duration;

use justonce_core::{OnConcurrent, OnFailure, Policy, UnknownReason};

/// What is under the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Several processes on one memory store, behind networks that lose, delay and repeat.
    Memory,
    /// One process on an embedded store, which crashes with it.
    Embedded,
    /// Real threads: runtimes of callers that block or end.
    Runtimes,
}

impl World {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Embedded, Self::Runtimes];

    /// The name on the command line and in the file of seeds.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Runtimes => "runtimes",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|world| world.name() == name)
    }
}

/// Everything that is drawn before a run begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) world: World,
    pub(crate) stack: Stack,
    /// In how many of a hundred store calls something goes wrong.
    pub(crate) trouble: u64,
    pub(crate) max_concurrent: usize,
    pub(crate) settle_timeout: Duration,
    pub(crate) processes: usize,
    pub(crate) operations: Vec<OperationPlan>,
    pub(crate) calls: Vec<CallPlan>,
    pub(crate) incidents: Vec<Incident>,
}

/// The layers between an engine and the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) calls: Calls,
    pub(crate) near_cache: bool,
}

/// How store calls are bounded and repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Bare,
    /// Each try has a limit.
    RetryOverTimeout(Duration),
    /// All tries together have a limit.
    TimeoutOverRetry(Duration),
}

/// An operation of a run.
#[derive(Clone, Debug)]
pub(crate) struct OperationPlan {
    pub(crate) policy: Policy,
}

/// A call of a run.
#[derive(Clone, Debug)]
pub(crate) struct CallPlan {
    /// Its name in the history.
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) process: usize,
    pub(crate) operation: usize,
    /// Which of two requests it is, for one key.
    pub(crate) request: u8,
    pub(crate) door: Door,
    pub(crate) on_concurrent: OnConcurrent,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) handler: HandlerPlan,
    pub(crate) leaves: Leaves,
}

/// How an operation is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Run,
    Detached,
    /// Begin, and complete by hand.
    ByHand,
}

/// When a caller drops its future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    Never,
    /// At so many awaits.
    AtAwait(u32),
    After(Duration),
}

/// What a handler does.
#[derive(Clone, Debug)]
pub(crate) struct HandlerPlan {
    /// It waits so long, saves a checkpoint, and again.
    pub(crate) parts: Vec<Duration>,
    pub(crate) end: HandlerEnd,
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerEnd {
    Ok,
    Retryable,
    Permanent,
    NotExecuted,
    Unknown,
    Unclassified,
    Panics,
    Hangs,
}

/// Something that happens to a process, a clock or an operation.
#[derive(Clone, Debug)]
pub(crate) struct Incident {
    pub(crate) at: Duration,
    pub(crate) what: IncidentKind,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncidentKind {
    /// A process dies, and is there again after a while.
    Crash { process: usize, down_for: Duration },
    /// The callers' runtime of a process stands still; the engine's own thread does not.
    Stall { process: usize, lasts: Duration },
    /// No call of a process reaches the store.
    Partition { process: usize, lasts: Duration },
    /// The store's clock jumps by so many milliseconds.
    Jump { by: i64 },
    /// An operator looks at an operation, and does what can be done about it.
    Operator { process: usize, operation: usize, wish: Wish },
    /// A sweep of the store.
    Sweep { process: usize },
    /// The disk of the embedded store fails at its next batch, and the process is started again.
    DiskFails { down_for: Duration },
    /// The embedded store brings its log over to its storage engine.
    Apply,
}

/// What an operator would like, if the state of the operation allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Complete,
    Fail,
    Release,
    Expire,
    Erase,
}

impl HandlerPlan {
    /// Fails at nothing and takes no time.
    pub(crate) const fn simple() -> Self {
        Self { parts: Vec::new(), end: HandlerEnd::Ok }
    }
}

impl OperationPlan {
    /// Whether a failure that may be tried again frees the operation for another try.
    pub(crate) fn retries(&self) -> bool {
        !matches!(self.policy.on_failure(), OnFailure::Replay)
    }
}

/// Whether a lapsed lease is the reason.
pub(crate) const fn is_lapse(reason: UnknownReason) -> bool {
    matches!(reason, UnknownReason::Lapsed | UnknownReason::AttemptsExhausted)
}
