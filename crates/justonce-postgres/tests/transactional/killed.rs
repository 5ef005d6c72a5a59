//! A process is killed with SIGKILL at every point of a transfer, and another one goes on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use justonce_core::Engine;
use justonce_core::engine::Context;
use justonce_postgres::tx::Tx;

use crate::bank::{Bank, short_lived, store_at, transfer, until_receipt};
use crate::proxy::{Proxy, Stop};

/// Says to a worker where to work, which transfer to do, and where to stop.
const WORKER_ENV: &str = "JUSTONCE_TRANSFER_WORKER";

/// Kills itself with its handle, so that no failed test leaves one behind.
struct Worker(Child);

impl Worker {
    fn start(url: &str, name: &str, stop: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_worker_transfers", "--nocapture"])
            .env(WORKER_ENV, format!("{url} {name} {stop}"))
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
        let [url, name, stop] = words.as_slice() else { panic!("{task}") };
        return work(url, name, stop).await;
    }
    let bank = Bank::open();
    work(&bank.server.url(), "a", "nowhere").await;
    bank.ensure(&["a"]);
}

async fn work(url: &str, name: &str, stop: &str) {
    let store = store_at(url).await;
    let engine = Engine::new(store.clone());
    let handler = async |tx: Tx, context: Context| {
        here(stop, "claimed").await;
        let outcome = transfer(&tx, &context).await?;
        here(stop, "written").await;
        Ok(outcome)
    };
    let ran = store.transactional(&engine, &short_lived(name), handler).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_all_or_nothing() {
    let bank = Bank::open();
    let store = bank.store().await;
    let mut done = Vec::new();
    for point in ["claimed", "written", "done"] {
        let mut worker = Worker::start(&bank.server.url(), point, point);
        tokio::task::block_in_place(|| worker.reaches(point));
        worker.kill();
        until_receipt(&store, &short_lived(point)).await;
        done.push(point);
        bank.ensure(&done);
    }
    let proxy = Proxy::before(bank.server.port()).await;
    for (name, stop) in [("asked", Stop::BeforeServer), ("committed", Stop::BeforeClient)] {
        let stopped = proxy.stop_next(stop);
        let mut worker = Worker::start(&proxy.url(), name, "nowhere");
        stopped.meanwhile(|| worker.kill()).await;
        until_receipt(&store, &short_lived(name)).await;
        done.push(name);
        bank.ensure(&done);
    }
}
