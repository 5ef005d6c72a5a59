//! An order service by phases, on PostgreSQL, with a table of its own.
//!
//! Phases always go ahead. Here going ahead may mean to undo: the last phases do so, if a service
//! refused its part, and are nothing otherwise. A service that does not answer is asked until it
//! does, by the client's retry or by the completer.

use std::time::Duration;

use justonce::engine::Context;
use justonce::postgres::PostgresStore;
use justonce::postgres::tx::Tx;
use justonce::saga::{Completer, PhaseRun, Phases, PhasesError};
use justonce::{
    BackOff, Engine, Fingerprint, HandlerError, Key, OnFailure, OnLapsed, Operation, Outcome,
    Policy, Ran, Scope,
};

use crate::front::{Settings, Taken, Takes};
use crate::order::{Entries, Order, Reply};
use crate::service::Said;
use crate::services::Services;
use crate::trade::Trade;

/// The operation in the scope of all orders.
const OPERATION: &str = "order";
/// What an order goes through.
const PHASES: [&str; 6] = ["open", "reserve", "charge", "ship", "refund", "cancel"];
/// What can have been done before something was refused, last first.
const UNDONE: [Trade; 2] = [Trade::Payment, Trade::Inventory];
/// The pauses between attempts while a service does not answer.
const BACK_OFF: BackOff = BackOff { first: Duration::from_millis(50), max: Duration::from_secs(5) };

/// Takes orders, each as one operation in phases.
#[derive(Clone, Debug)]
pub struct ByPhases {
    engine: Engine,
    store: PostgresStore,
    phases: Phases,
    policy: Policy,
    services: Services,
}

impl ByPhases {
    /// On this database.
    ///
    /// # Errors
    ///
    /// If the database cannot be used, or a setting is impossible.
    pub async fn open(url: &str, services: &Services, settings: &Settings) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(connection);
        client.batch_execute(include_str!("../sql/orders.sql")).await?;
        drop(client);
        driver.await??;
        let store = PostgresStore::open(url).await?;
        let policy = Policy::builder()
            .lease(settings.lease)
            .on_lapsed(OnLapsed::Resume)
            .on_failure(OnFailure::Retry(BACK_OFF))
            .max_attempts(None)
            .build()?;
        let (engine, services) = (Engine::new(store.clone()), services.clone());
        Ok(Self { engine, store, phases: Phases::new(PHASES)?, policy, services })
    }

    /// Goes through the phases.
    async fn go(self, mut run: PhaseRun) -> Result<Outcome, HandlerError> {
        let order: Order = run.input()?;
        let number = self.write_down(&mut run, &order).await?;
        let mut entries = Entries::new();
        let mut refused: Option<(Trade, String)> = None;
        for trade in Trade::ALL {
            let needed = refused.is_none();
            let act = async |key: Key| {
                let said = async || self.services.act(trade, &order, &key).await;
                Ok(if needed { Some(said().await?) } else { None })
            };
            match run.phase(trade.does(), act).await? {
                Some(Said::Entry(entry)) => drop(entries.insert(trade, entry)),
                Some(Said::Refused(why)) => refused = Some((trade, why)),
                None => {}
            }
        }
        let name = order.order.clone();
        let reply = match refused {
            None => Reply::Done { order: name, entries },
            Some((trade, why)) => {
                self.undo(&mut run, &order, &entries).await?;
                Reply::RolledBack { order: name, step: trade.does().to_owned(), why }
            }
        };
        self.close(run.context().clone(), number, &reply).await
    }

    /// The order in our own table, and the checkpoint: in one transaction.
    async fn write_down(&self, run: &mut PhaseRun, order: &Order) -> Result<i64, HandlerError> {
        run.phase_within("open", async |phase| {
            let insert = async |tx: Tx| {
                self.services.stage.reached("before open").await;
                let insert =
                    "INSERT INTO orders (name, state) VALUES ($1, 'open') RETURNING number";
                let row = tx.query_one(insert, &[&order.order]).await?;
                self.services.stage.reached("in open").await;
                let number: i64 = row.try_get(0)?;
                Ok((number, phase.point(&number)?))
            };
            let number = self.store.checkpoint_with(phase.context(), insert).await?;
            self.services.stage.reached("after open").await;
            Ok(number)
        })
        .await
    }

    /// Undoes what was done.
    async fn undo(
        &self,
        run: &mut PhaseRun,
        order: &Order,
        entries: &Entries,
    ) -> Result<(), HandlerError> {
        for trade in UNDONE {
            let step_key = run.context().child_key(trade.does());
            let undo = async |key: Key| {
                if entries.contains_key(&trade) {
                    self.services.undo(trade, order, &step_key, &key).await?;
                }
                Ok(())
            };
            run.phase(trade.undoes(), undo).await?;
        }
        Ok(())
    }

    /// The order's end in our own table, and the outcome: in one transaction.
    async fn close(
        &self,
        context: Context,
        number: i64,
        reply: &Reply,
    ) -> Result<Outcome, HandlerError> {
        self.store
            .outcome_with(context, async |tx, _| {
                let state = match reply {
                    Reply::Done { .. } => "done",
                    Reply::RolledBack { .. } => "rolled-back",
                };
                let update = "UPDATE orders SET state = $2 WHERE number = $1";
                tx.execute(update, &[&number, &state]).await?;
                self.services.stage.reached("in close").await;
                Ok(Outcome::bytes(serde_json::to_vec(reply)?))
            })
            .await
    }
}

impl Takes for ByPhases {
    async fn take(&self, key: Key, order: Order) -> anyhow::Result<Taken> {
        let scope = Scope::builder().tenant("shop").operation(OPERATION).build()?;
        let fingerprint = Fingerprint::of_json(&scope, &serde_json::to_vec(&order)?);
        let operation = Operation::new(scope, key, fingerprint).with_policy(self.policy);
        let operation = self.phases.asked(operation, &order)?;
        let ran = self.phases.run(&self.engine, &operation, |run| self.clone().go(run)).await;
        let replayed = matches!(ran, Ok(Ran::Replayed(_) | Ran::Superseded(_)));
        Ok(match ran {
            Ok(Ran::Mismatch) => Taken::Mismatch,
            Ok(ran) => match ran.outcome() {
                Some(outcome) => Taken::Answered { reply: read(outcome)?, replayed },
                // It goes on when somebody asks again, or by the completer.
                None => Taken::Later(format!("{ran:?}")),
            },
            Err(PhasesError::Run(error)) => Taken::Later(error.to_string()),
            Err(error) => return Err(error.into()),
        })
    }

    fn completer(&self, settings: &Settings) -> anyhow::Result<Completer> {
        let this = self.clone();
        let completer = Completer::new(&self.engine, settings.completer());
        Ok(completer.with_phases(OPERATION, &self.phases, move |run| this.clone().go(run))?)
    }
}

fn read(outcome: &Outcome) -> anyhow::Result<Reply> {
    Ok(serde_json::from_slice(outcome.body().unwrap_or_default())?)
}
