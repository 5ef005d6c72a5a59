//! An order service by a saga, on the embedded store.

use std::path::Path;
use std::time::Duration;

use justonce::saga::{
    Call, Completer, RolledBack, Saga, SagaEnd, SagaError, SagaRan, SagaStep, StepError, Tries,
};
use justonce::{BackOff, EmbeddedStore, Engine, Key, Policy, Scope};
use serde::{Deserialize, Serialize};

use crate::front::{Settings, Taken, Takes};
use crate::order::{Entries, Order, Reply};
use crate::service::Said;
use crate::services::Services;
use crate::trade::Trade;

/// How often a service is asked before its part is given up, or the order is stuck.
const TRIES: Tries = Tries {
    most: 4,
    back_off: BackOff { first: Duration::from_millis(50), max: Duration::from_secs(1) },
};

/// What is known of an order under way. It is saved after each step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    order: Order,
    entries: Entries,
}

/// Takes orders, each as one saga.
#[derive(Clone, Debug)]
pub struct BySaga {
    engine: Engine,
    saga: Saga<Progress>,
}

impl BySaga {
    /// On a store in this directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used, or a setting is impossible.
    pub fn open(
        directory: &Path,
        services: &Services,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let engine = Engine::new(EmbeddedStore::open(directory)?);
        let policy = Policy::builder().lease(settings.lease).build()?;
        let mut saga = Saga::builder("order").policy(policy);
        for trade in Trade::ALL {
            saga = saga.step(step(trade, services));
        }
        Ok(Self { engine, saga: saga.build()? })
    }
}

/// One step: what a service does, what is saved of it, and how it is undone.
fn step(trade: Trade, services: &Services) -> SagaStep<Progress> {
    let (ahead, back) = (services.clone(), services.clone());
    let act = move |call: Call<Progress>| {
        let services = ahead.clone();
        async move {
            match services.act(trade, &call.context().order, call.key()).await? {
                Said::Entry(entry) => Ok(entry),
                Said::Refused(why) => Err(StepError::permanent(why)),
            }
        }
    };
    let undo = move |call: Call<Progress>| {
        let services = back.clone();
        async move {
            let order = &call.context().order;
            Ok(services.undo(trade, order, call.step_key(), call.key()).await?)
        }
    };
    SagaStep::new(trade.does(), act)
        .saves(move |progress: &mut Progress, entry| {
            progress.entries.insert(trade, entry);
        })
        .undo(undo)
        .tries(TRIES)
        .undo_tries(TRIES)
}

impl Takes for BySaga {
    async fn take(&self, key: Key, order: Order) -> anyhow::Result<Taken> {
        let progress = Progress { order, entries: Entries::new() };
        let scope = Scope::builder().tenant("shop");
        let operation = self.saga.operation(scope, key, &progress)?;
        Ok(match self.saga.run(&self.engine, &operation).await {
            Ok(SagaRan::Ended(end)) => Taken::Answered { reply: reply(end), replayed: false },
            Ok(SagaRan::Replayed(end)) => Taken::Answered { reply: reply(end), replayed: true },
            Ok(SagaRan::Mismatch) => Taken::Mismatch,
            // It goes on when somebody asks again, or by the completer.
            Ok(other) => Taken::Later(format!("{other:?}")),
            Err(SagaError::Run(error)) => Taken::Later(error.to_string()),
            Err(error) => return Err(error.into()),
        })
    }

    fn completer(&self, settings: &Settings) -> anyhow::Result<Completer> {
        Ok(Completer::new(&self.engine, settings.completer()).with(self.saga.clone())?)
    }
}

fn reply(end: SagaEnd<Progress>) -> Reply {
    match end {
        SagaEnd::Done(progress) => {
            Reply::Done { order: progress.order.order, entries: progress.entries }
        }
        SagaEnd::RolledBack(RolledBack { step, why, context }) => {
            Reply::RolledBack { order: context.order.order, step, why }
        }
    }
}
