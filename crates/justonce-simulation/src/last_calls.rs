//! The last calls of a run: nothing goes wrong any more, and every operation must still end.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::StateName;
use justonce_core::store::ListQuery;
use tokio::time::{Instant, sleep};

use crate::history::{Answer, OrderKind, What};
use crate::operator::Operator;
use crate::process::Life;
use crate::running::{Running, plain_call};

/// The names of the last calls begin here.
pub(crate) const FIRST_LAST_CALL: usize = 1000;
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(250);
/// An operation that has not ended after this time never does: longer than all leases, and all that
/// a clock may have jumped back.
const NEVER: Duration = Duration::from_secs(3600);

/// Calls every operation until it has ended, and then once more from every process.
pub(crate) async fn call(running: &Arc<Running>) {
    let mut pending: Vec<(usize, u8)> = (0..running.operations.len()).map(|at| (at, 0)).collect();
    let mut number = FIRST_LAST_CALL;
    let until = Instant::now() + NEVER;
    while !pending.is_empty() {
        let mut left = Vec::new();
        for (operation, request) in pending {
            let Some(life) = alive(running, 0) else { return };
            number += 1;
            if let Some(request) = round(running, &life, number, operation, request).await {
                left.push((operation, request));
            }
        }
        pending = left;
        if Instant::now() > until {
            let why = format!("operations {pending:?} do not end");
            running.log.add(What::Broken { why });
            return;
        }
        sleep(PAUSE).await;
    }
    for operation in 0..running.operations.len() {
        for process in 0..running.plan.processes {
            let Some(life) = alive(running, process) else { return };
            number += 1;
            let plan = plain_call(number, process, operation, 0);
            if let Some(call) = running.prepared(&life, plan) {
                call.run().await;
            }
        }
    }
}

/// A process: by now each has been started again.
fn alive(running: &Running, process: usize) -> Option<Arc<Life>> {
    let life = running.life(process);
    if life.is_none() {
        let why = format!("process {process} was not started again");
        running.log.add(What::Broken { why });
    }
    life
}

/// One call; returns the request to ask with next, if the operation has not ended.
async fn round(
    running: &Arc<Running>,
    life: &Arc<Life>,
    number: usize,
    operation: usize,
    request: u8,
) -> Option<u8> {
    let plan = plain_call(number, life.process, operation, request);
    let call = running.prepared(life, plan)?;
    match call.run().await {
        Some(Answer::Mismatch) => Some(1 - request),
        Some(Answer::Unknown { fence, .. }) => {
            list(running, life).await;
            let id = running.operations.get(operation)?.id();
            let log = running.log.clone();
            let operator = Operator { life: Arc::clone(life), log, id, operation };
            let text = format!("operator with fence {fence}");
            operator.order(fence, OrderKind::Complete(text)).await;
            Some(request)
        }
        Some(
            Answer::Executed(_) | Answer::Replayed(_) | Answer::FailedBefore(_) | Answer::Expired,
        ) => None,
        _ => Some(request),
    }
}

/// Writes down what is listed as unknown.
async fn list(running: &Arc<Running>, life: &Arc<Life>) {
    let query = ListQuery { state: Some(StateName::Unknown), ..ListQuery::default() };
    let Ok(page) = life.engine.store().list(&query).await else { return };
    let listed = |id| page.records.iter().any(|record| record.id == id);
    let operations = running.operations.iter().enumerate();
    let unknown = operations.filter(|(_, of)| listed(of.id())).map(|(at, _)| at).collect();
    running.log.add(What::Listed { unknown });
}
