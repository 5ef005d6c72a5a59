//! A run while it goes on: its processes, its operations and its history.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use justonce_core::{Fingerprint, OnConcurrent, Operation};

use crate::base::Base;
use crate::caller::Call;
use crate::clock::JumpingClock;
use crate::history::{Log, Subject};
use crate::network::Weather;
use crate::plan::{CallPlan, Door, HandlerPlan, Leaves, Plan};
use crate::process::Life;

/// Everything of a run.
pub(crate) struct Running {
    pub(crate) plan: Plan,
    pub(crate) log: Log,
    pub(crate) operations: Vec<Operation>,
    pub(crate) clock: JumpingClock,
    pub(crate) weather: Arc<Weather>,
    pub(crate) base: Arc<dyn Base>,
    pub(crate) lives: Mutex<Vec<Arc<Life>>>,
}

impl Running {
    pub(crate) fn lives(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process, if it is alive.
    pub(crate) fn life(&self, process: usize) -> Option<Arc<Life>> {
        self.lives().get(process).filter(|life| !life.is_dead()).cloned()
    }

    /// A call in this life of a process.
    pub(crate) fn prepared(&self, life: &Arc<Life>, plan: CallPlan) -> Option<Call> {
        let mut operation = self.operations.get(plan.operation)?.clone();
        if plan.request > 0 {
            let fingerprint = Fingerprint::of(operation.scope(), &[plan.request]);
            operation = operation.with_fingerprint(fingerprint);
        }
        operation = operation.on_concurrent(plan.on_concurrent);
        if let Some(timeout) = plan.handler_timeout {
            operation = operation.with_handler_timeout(timeout);
        }
        let subject = Subject {
            call: plan.number,
            process: life.process,
            life: life.number,
            operation: plan.operation,
            request: plan.request,
            by_hand: plan.door == Door::ByHand,
        };
        Some(Call { life: Arc::clone(life), log: self.log.clone(), plan, operation, subject })
    }
}

/// A call that nothing is special about.
pub(crate) fn plain_call(number: usize, process: usize, operation: usize, request: u8) -> CallPlan {
    CallPlan {
        number,
        at: Duration::ZERO,
        process,
        operation,
        request,
        door: Door::Run,
        on_concurrent: OnConcurrent::Reject,
        handler_timeout: None,
        handler: HandlerPlan::simple(),
        leaves: Leaves::Never,
    }
}
