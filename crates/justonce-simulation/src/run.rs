//! One run: a plan is carried out on a world, and everything that happens is written down.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::{Fingerprint, Key, KeyError, Operation, Scope};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::base::Base;
use crate::clock::JumpingClock;
use crate::draw::Draw;
use crate::history::{Event, Log, What};
use crate::last_calls;
use crate::network::Weather;
use crate::operator::Operator;
use crate::plan::{CallPlan, Calls, Incident, IncidentKind, Plan};
use crate::process::Life;
use crate::running::Running;

/// Every call is answered within this time after all faults have ended: the longest wait of a
/// duplicate, and then the longest handler.
const ALL_ANSWERED_WITHIN: Duration = Duration::from_secs(400);
/// How often it is looked whether all are answered.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Carries a plan out.
///
/// # Errors
///
/// If the names of the operations are refused.
pub(crate) async fn run(
    plan: Plan,
    base: Arc<dyn Base>,
    clock: JumpingClock,
    log: Log,
) -> Result<Vec<Event>, KeyError> {
    let operations = operations(&plan)?;
    let known = operations.iter().enumerate();
    let weather = Arc::new(Weather {
        seed: plan.seed,
        trouble: plan.trouble,
        hangs: plan.stack.calls != Calls::Bare,
        calm: AtomicBool::new(false),
        operations: known.map(|(at, of)| (of.id(), (at, of.policy().lease()))).collect(),
        log: log.clone(),
    });
    let lives = (0..plan.processes).map(|at| Life::start(&plan, &weather, &base, at, 0)).collect();
    let running =
        Arc::new(Running { plan, log, operations, clock, weather, base, lives: Mutex::new(lives) });
    running.carry_out().await;
    running.end_faults().await;
    running.all_answered().await;
    last_calls::call(&running).await;
    Ok(running.log.events())
}

fn operations(plan: &Plan) -> Result<Vec<Operation>, KeyError> {
    let scope = Scope::global();
    let operations = plan.operations.iter().enumerate();
    operations
        .map(|(number, operation)| {
            let key = Key::client(format!("operation-{number}"))?;
            let fingerprint = Fingerprint::of(&scope, &[0]);
            Ok(Operation::new(scope.clone(), key, fingerprint).with_policy(operation.policy))
        })
        .collect()
}

impl Running {
    /// Begins every call and incident at its time, and waits until the incidents are over.
    async fn carry_out(self: &Arc<Self>) {
        let start = Instant::now();
        let mut incidents = JoinSet::new();
        let mut next_call = 0;
        let mut next_incident = 0;
        let mut calls = self.plan.calls.clone();
        calls.sort_by_key(|call| call.at);
        loop {
            let call = calls.get(next_call);
            let incident = self.plan.incidents.get(next_incident);
            let is_call = match (call, incident) {
                (None, None) => break,
                (Some(call), Some(incident)) => call.at <= incident.at,
                (call, _) => call.is_some(),
            };
            if let Some(call) = call.filter(|_| is_call) {
                sleep_until(start + call.at).await;
                self.call(call.clone());
                next_call += 1;
            } else if let Some(incident) = incident {
                sleep_until(start + incident.at).await;
                next_incident += 1;
                incidents.spawn(Arc::clone(self).happen(incident.clone()));
            }
        }
        while incidents.join_next().await.is_some() {}
    }

    fn call(&self, plan: CallPlan) {
        let Some(life) = self.life(plan.process) else { return };
        if let Some(call) = self.prepared(&life, plan) {
            life.spawn(async {
                call.run().await;
            });
        }
    }

    /// One incident, from its beginning to its end.
    async fn happen(self: Arc<Self>, incident: Incident) {
        match incident.what {
            IncidentKind::Crash { process, down_for } => self.crash(process, down_for).await,
            IncidentKind::Stall { process, lasts } => {
                let Some(life) = self.life(process) else { return };
                self.log.add(What::Stalled { process, stands: true });
                life.stall(true);
                sleep(lasts).await;
                life.stall(false);
                self.log.add(What::Stalled { process, stands: false });
            }
            IncidentKind::Partition { process, lasts } => {
                let Some(life) = self.life(process) else { return };
                self.log.add(What::Partitioned { process, cut: true });
                life.partition(true);
                sleep(lasts).await;
                life.partition(false);
                self.log.add(What::Partitioned { process, cut: false });
            }
            IncidentKind::Jump { by } => {
                self.clock.jump(by);
                self.log.add(What::Jumped { by });
            }
            IncidentKind::Operator { process, operation, wish } => {
                let Some(life) = self.life(process) else { return };
                if let Some(of) = self.operations.get(operation) {
                    let operator = Operator {
                        life: Arc::clone(&life),
                        log: self.log.clone(),
                        id: of.id(),
                        operation,
                    };
                    life.spawn(operator.act(wish));
                }
            }
            IncidentKind::Sweep { process } => {
                let Some(life) = self.life(process) else { return };
                let engine = life.engine.clone();
                life.spawn(async move {
                    // What it cannot do now the rules do later.
                    let _ = engine.sweep(10).await;
                });
            }
            IncidentKind::DiskFails { down_for } => {
                self.log.add(What::Partitioned { process: 0, cut: true });
                self.base.fail_next();
                sleep(down_for).await;
                self.crash(0, down_for).await;
                self.log.add(What::Partitioned { process: 0, cut: false });
            }
            IncidentKind::Apply => self.base.apply(),
        }
    }

    async fn crash(&self, process: usize, down_for: Duration) {
        let Some(life) = self.life(process) else { return };
        life.crash();
        self.base.crash();
        self.log.add(What::Crashed { process });
        sleep(down_for).await;
        if let Err(why) = self.base.restart() {
            self.log.add(What::Broken { why: format!("the store does not open: {why}") });
        }
        self.log.add(What::Restarted { process });
        let next = Life::start(&self.plan, &self.weather, &self.base, process, life.number + 1);
        if let Some(place) = self.lives().get_mut(process) {
            *place = next;
        }
    }

    /// Nothing goes wrong any more. All incidents are over by now.
    async fn end_faults(&self) {
        let draw = Draw::keyed(self.plan.seed, &[4]);
        sleep(draw.millis(0, 20_000)).await;
        self.weather.calm.store(true, Ordering::Relaxed);
        self.log.add(What::FaultsEnded);
    }

    async fn all_answered(&self) {
        // A call that was spawned just now has not asked yet.
        sleep(LOOK_EVERY).await;
        let until = Instant::now() + ALL_ANSWERED_WITHIN;
        while let Some(call) = self.log.open_calls(None).into_iter().next() {
            if Instant::now() >= until {
                let why = format!(
                    "call {call} was not answered within {ALL_ANSWERED_WITHIN:?} after all \
                     faults had ended"
                );
                self.log.add(What::Broken { why });
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        self.log.add(What::AllAnswered);
    }
}

/// Runs something on a runtime of its own whose time is paused.
///
/// # Errors
///
/// If the system gives no runtime.
pub(crate) fn with_paused_time<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(work))
}
