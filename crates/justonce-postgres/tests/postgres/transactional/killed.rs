//! A process is killed with SIGKILL at every point of a transfer, and another one goes on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use justonce_core::engine::Context;
use justonce_core::{Engine, OnLapsed, Ran};
use justonce_postgres::tx::Tx;

use super::bank::{Bank, short_lived_under, store_at, transfer, until_receipt};
use super::proxy::{Proxy, Stop};

/// Says to a worker where to work, which transfer to do, and where to stop.
const WORKER_ENV: &str = "JUSTONCE_TRANSFER_WORKER";

const RULES: [OnLapsed; 3] = [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold];

/// Kills itself with its handle, so that no failed test leaves one behind.
struct Worker(Child);

impl Worker {
    fn start(url: &str, name: &str, stop: &str, rule: OnLapsed) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transactional::killed::the_worker_transfers", "--nocapture"])
            .env(WORKER_ENV, format!("{url} {name} {stop} {rule:?}"))
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// Waits until it says that it has come so far.
    fn reaches(&mut self, stop: &str) {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let said = output.lines().any(|line| line.unwrap().contains(&format!("@{stop}")));
        assert!(said, "the worker ended before {stop}");
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Without the variable this test is a worker that nobody kills; with it, it is one that is.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_transfers() {
    if let Ok(task) = std::env::var(WORKER_ENV) {
        let words: Vec<&str> = task.split(' ').collect();
        let [url, name, stop, rule] = words.as_slice() else { panic!("{task}") };
        let rule = RULES.into_iter().find(|known| format!("{known:?}") == *rule).unwrap();
        return work(url, name, stop, rule).await;
    }
    let bank = Bank::open();
    work(&bank.server.url(), "a", "nowhere", OnLapsed::Rerun).await;
    bank.ensure(&["a"]);
}

async fn work(url: &str, name: &str, stop: &str, rule: OnLapsed) {
    let store = store_at(url).await;
    let engine = Engine::new(store.clone());
    let handler = async |tx: Tx, context: Context| {
        here(stop, "claimed").await;
        let outcome = transfer(&tx, &context).await?;
        here(stop, "written").await;
        Ok(outcome)
    };
    if stop == "elsewhere" {
        let handler = async |context: Context| {
            here(stop, "elsewhere").await;
            store.outcome_with(context, handler).await
        };
        engine.run(&short_lived_under(rule, name), handler).await.unwrap();
        return;
    }
    let ran = store.transactional(&engine, &short_lived_under(rule, name), handler).await;
    here(stop, "done").await;
    assert!(ran.unwrap().outcome().is_some());
}

/// Says that it has come so far, and goes no further.
async fn here(stop: &str, point: &str) {
    if stop == point {
        println!("@{point}");
        std::future::pending::<()>().await;
    }
}

/// Whatever the policy says, the next caller runs what was not committed: under `hold` too.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_all_or_nothing() {
    let bank = Bank::open();
    let store = bank.store().await;
    let proxy = Proxy::before(bank.server.port()).await;
    let mut done = Vec::new();
    for rule in RULES {
        for point in ["claimed", "written", "done"] {
            let name = format!("{rule:?}-{point}");
            let mut worker = Worker::start(&bank.server.url(), &name, point, rule);
            tokio::task::block_in_place(|| worker.reaches(point));
            worker.kill();
            until_receipt(&store, &short_lived_under(rule, &name)).await;
            done.push(name);
            bank.ensure(&done);
        }
        for (point, stop) in [("asked", Stop::BeforeServer), ("committed", Stop::BeforeClient)] {
            let name = format!("{rule:?}-{point}");
            let stopped = proxy.stop_next(stop);
            let mut worker = Worker::start(&proxy.url(), &name, "nowhere", rule);
            stopped.meanwhile(|| worker.kill()).await;
            until_receipt(&store, &short_lived_under(rule, &name)).await;
            done.push(name);
            bank.ensure(&done);
        }
    }
}

/// With effects elsewhere nobody can tell, so the policy holds as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_with_effects_elsewhere_leaves_an_unknown_operation_under_hold() {
    let bank = Bank::open();
    let store = bank.store().await;
    let engine = Engine::new(store.clone());
    let operation = short_lived_under(OnLapsed::Hold, "elsewhere");
    let mut worker = Worker::start(&bank.server.url(), "elsewhere", "elsewhere", OnLapsed::Hold);
    tokio::task::block_in_place(|| worker.reaches("elsewhere"));
    worker.kill();
    let handler = async |context: Context| {
        let writes = async |tx: Tx, context: Context| transfer(&tx, &context).await;
        store.outcome_with(context, writes).await
    };
    let ran = engine.run(&operation, handler).await.unwrap();
    assert!(matches!(ran, Ran::Unknown(_)), "{ran:?}");
    // `transactional` finds the record of this one, and keeps the policy under which it was begun.
    let handler = async |tx: Tx, context: Context| transfer(&tx, &context).await;
    let ran = store.transactional(&engine, &operation, handler).await.unwrap();
    assert!(matches!(ran, Ran::Unknown(_)), "{ran:?}");
    bank.ensure::<&str>(&[]);
}
