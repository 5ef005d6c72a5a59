//! gunicorn, which replaces its workers while requests are under way.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use justonce_testbed::{WebServer, python};
use nix::sys::signal::Signal;

use crate::support::client::{pay_patiently, until};
use crate::support::process::{Gateway, Home};

const BODY: &str = "{\"amount\":5}";
const CLIENTS: usize = 4;
const WORKERS: usize = 2;
/// How often all workers are replaced.
const RESTARTS: usize = 3;
/// How many operations end between two restarts.
const WORK: usize = 60;

struct Service {
    server: WebServer,
    ledger: PathBuf,
    _place: tempfile::TempDir,
}

impl Service {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let ledger = place.path().join("ledger");
        let app = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/servers");
        let variable = format!("LEDGER={}", ledger.display());
        let server = WebServer::start(&python(), |directory: &Path, address| {
            let words = format!(
                "-m gunicorn --chdir {app} --bind {address} --workers {WORKERS} --threads 4 \
                 --keep-alive 1 --graceful-timeout 20 --env {variable} --worker-tmp-dir {} \
                 gunicorn_app:app",
                directory.display()
            );
            words.split(' ').filter(|word| !word.is_empty()).map(Into::into).collect()
        });
        Self { server: server.unwrap(), ledger, _place: place }
    }

    /// How often each key took effect.
    fn effects(&self) -> HashMap<String, usize> {
        let mut effects = HashMap::new();
        for key in std::fs::read_to_string(&self.ledger).unwrap_or_default().lines() {
            *effects.entry(key.to_owned()).or_default() += 1;
        }
        effects
    }
}

fn started() -> (Service, Home, Gateway) {
    let (service, home) = (Service::start(), Home::new());
    home.configure(service.server.address(), "[log]\nlevel = 'warn'\n");
    let gateway = home.start();
    (service, home, gateway)
}

#[test]
fn a_chunked_answer_is_stored_whole() {
    let (service, _home, gateway) = started();
    let (first, retry) =
        (pay_patiently(gateway.address, "k", BODY), pay_patiently(gateway.address, "k", BODY));
    assert_eq!((first.status(), first.text().as_str()), (201, BODY), "{first:?}");
    assert_eq!((retry.is_replay(), retry.text().as_str()), (true, BODY), "{retry:?}");
    assert_eq!(service.effects(), HashMap::from([("k".to_owned(), 1)]));
}

#[test]
fn replaced_workers_execute_nothing_twice() {
    let (mut service, _home, gateway) = started();
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..CLIENTS).map(|client| {
        let (stop, done, address) = (Arc::clone(&stop), Arc::clone(&done), gateway.address);
        std::thread::spawn(move || {
            let mut answers = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return answers;
                }
                let key = format!("{client}-{number}");
                let answer = pay_patiently(address, &key, BODY);
                answers.push((key, answer.status(), answer.code()));
                done.fetch_add(1, Ordering::SeqCst);
            }
            answers
        })
    });
    let clients: Vec<_> = clients.collect();
    for restart in 1..=RESTARTS {
        let wanted = restart * WORK;
        until("work", || done.load(Ordering::SeqCst), |done| *done >= wanted);
        let booted = service.server.log().matches("Booting worker").count();
        service.server.process().signal(Signal::SIGHUP).unwrap();
        let server = &service.server;
        let boots = || server.log().matches("Booting worker").count();
        until("new workers", boots, |boots| *boots >= booted + WORKERS);
    }
    until("more work", || done.load(Ordering::SeqCst), |done| *done >= (RESTARTS + 1) * WORK);
    stop.store(true, Ordering::SeqCst);
    let answers = clients.into_iter().flat_map(|client| client.join().unwrap());
    let answers: Vec<_> = answers.collect();
    let effects = service.effects();
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    let mut unknown = 0;
    for (key, status, code) in &answers {
        match (*status, code.as_str()) {
            (201, _) => assert!(effects.contains_key(key), "{key} is not in the ledger"),
            (502, "upstream-unreachable") => assert!(!effects.contains_key(key), "{key} is in it"),
            // A request that crossed the close of its connection: one of a client for each worker
            // that goes, at most.
            (502, "upstream-failed") => unknown += 1,
            other => panic!("{key}: {other:?}"),
        }
    }
    println!("{} operations, {unknown} unknown, {} effects", answers.len(), effects.len());
    assert!(unknown <= RESTARTS * WORKERS * CLIENTS, "{unknown}");
}
