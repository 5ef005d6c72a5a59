//! The process that is killed. It says what it does, line by line, on its standard output: before
//! what it is about to try, after what it knows to be stored.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use justonce_core::engine::{Begun, HeldClaim};
use justonce_core::{
    Checkpoint, Engine, Entropy, Key, OnLapsed, Operation, Outcome, Policy, Scope,
};
use justonce_embedded::EmbeddedStore;

/// Names the store's directory, and makes the test binary the worker.
pub(crate) const WORKER_ENV: &str = "JUSTONCE_CRASH_WORKER";
/// Says which process this is, counted from 0: the keys move on with it, or they would all be
/// completed one day.
pub(crate) const ROUND_ENV: &str = "JUSTONCE_CRASH_ROUND";
/// By how many keys each process moves on.
const KEYS_A_ROUND: u32 = 300;
/// How many keys of a kind one process chooses from.
const KEYS: u32 = 4000;
/// How many operations are under way at once.
const CALLERS: u64 = 8;

/// Where the lines go.
type Say = Arc<dyn Fn(String) + Send + Sync>;

/// The promise is part of the key, so that parent and worker agree on it.
pub(crate) fn promise_of(key: &str) -> OnLapsed {
    match key.split('-').next() {
        Some("hold") => OnLapsed::Hold,
        Some("resume") => OnLapsed::Resume,
        _ => OnLapsed::Rerun,
    }
}

/// The operation of a key.
pub(crate) fn operation(key: &str) -> Operation {
    let policy = Policy::builder().on_lapsed(promise_of(key)).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

/// The outcome of an execution: it names the claim, so that two executions never agree.
pub(crate) fn outcome(key: &str, fence: u64) -> Outcome {
    Outcome::bytes(format!("{key} by {fence} {}", "x".repeat((fence % 2000) as usize)))
}

/// Works until somebody kills the process.
pub(crate) fn run_until_killed(directory: &Path) -> ! {
    let stdout = Mutex::new(std::io::stdout());
    let say: Say = Arc::new(move |line| {
        let mut stdout = stdout.lock().unwrap();
        // One write a line: a kill leaves whole lines and at most one part of one.
        if stdout.write_all(format!("@{line}\n").as_bytes()).and_then(|()| stdout.flush()).is_err()
        {
            std::process::abort();
        }
    });
    say("opening".into());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work(directory, u64::MAX, say));
    unreachable!("the worker has no end");
}

/// Works for a number of rounds and returns the lines.
pub(crate) fn run_briefly(directory: &Path, rounds: u64) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let say: Say = Arc::new(move |line| sink.lock().unwrap().push(line));
    tokio::runtime::Runtime::new().unwrap().block_on(work(directory, rounds, say));
    let lines = lines.lock().unwrap();
    lines.clone()
}

async fn work(directory: &Path, rounds: u64, say: Say) {
    let engine = Engine::new(EmbeddedStore::open(directory).unwrap());
    say("open".into());
    let entropy = Arc::new(Entropy::from_system());
    let round = std::env::var(ROUND_ENV).map_or(0, |text| text.parse().unwrap());
    let first_key = KEYS_A_ROUND * round;
    let tasks: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (engine, say, entropy) = (engine.clone(), Arc::clone(&say), Arc::clone(&entropy));
            tokio::spawn(async move {
                for _ in 0..rounds {
                    one_operation(&engine, &entropy, first_key, &say).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn one_operation(engine: &Engine, entropy: &Entropy, first_key: u32, say: &Say) {
    let kind = ["hold", "resume", "rerun"][(entropy.next_u32() % 3) as usize];
    // Few keys: the callers of one process, and those of the next, meet on them.
    let key = format!("{kind}-{}", first_key + entropy.next_u32() % KEYS);
    let Begun::Claimed(mut claim) = engine.begin(&operation(&key)).await.unwrap() else { return };
    let fence = claim.fence().get();
    say(format!("claimed {key} {fence}"));
    match entropy.next_u32() % 8 {
        0 => {
            say(format!("releasing {key} {fence}"));
            let _ = claim.release().await.unwrap();
        }
        1 => {
            say(format!("failing {key} {fence}"));
            let _ = claim.fail(Outcome::bytes("busy")).await.unwrap();
        }
        2 => {
            save(&claim, &key, say).await;
            complete(&mut claim, &key, say).await;
        }
        _ => complete(&mut claim, &key, say).await,
    }
}

async fn save(claim: &HeldClaim, key: &str, say: &Say) {
    let fence = claim.fence().get();
    let point = Checkpoint::new("half", format!("{fence}")).unwrap();
    let _ = claim.save(point).await.unwrap();
    say(format!("saved {key} {fence}"));
}

async fn complete(claim: &mut HeldClaim, key: &str, say: &Say) {
    let fence = claim.fence().get();
    say(format!("executed {key} {fence}"));
    let _ = claim.complete(outcome(key, fence)).await.unwrap();
    say(format!("completed {key} {fence}"));
}
