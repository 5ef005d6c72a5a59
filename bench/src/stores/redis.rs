//! The Redis store beside redis-benchmark on the same server.
//!
//! The floor is the least a script can do for the same promise: claim = one `SET … NX GET` of as
//! many bytes, complete = one `SET`, duplicate = one `GET`; each as EVALSHA, one command at a time
//! on each of 64 connections.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use justonce::OnLapsed;
use justonce::redis::RedisStore;
use justonce::store::{Cached, SharedStore};
use justonce_testbed::RedisServer;

use super::engine::{OUTCOME_BYTES, duplicates, first_time};
use super::run::{StoresArgs, add, in_turn};
use crate::load::runtime;
use crate::report::{Report, median};

/// How many callers at once.
const CALLERS: u64 = 64;
/// How many commands redis-benchmark sends in a round.
const COMMANDS: &str = "200000";
/// What a claim keeps, in bytes.
const CLAIM_BYTES: usize = 180;

const CLAIM: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET')";
const COMPLETE: &str = "return redis.call('SET', KEYS[1], ARGV[1])";
const REPLAY: &str = "return redis.call('GET', KEYS[1])";

pub(super) fn measure(args: &StoresArgs, server: &RedisServer, report: &mut Report) -> Result<()> {
    let runtime = runtime()?;
    let open = || runtime.block_on(RedisStore::builder(server.url()).open());
    let store: SharedStore = Arc::new(open()?);
    let near: SharedStore = Arc::new(Cached::near(open()?));
    let floor = Floor::new(server)?;
    let mut floors = (Vec::new(), Vec::new());
    let mut rates = vec![Vec::new(); 3];
    let candidates = runtime.block_on(async {
        anyhow::Ok([
            duplicates(Arc::clone(&store), CALLERS).await?,
            first_time(store, CALLERS, OnLapsed::Hold)?,
            duplicates(near, CALLERS).await?,
        ])
    })?;
    for round in 0..args.rounds {
        floors.0.push(floor.duplicates()?);
        floors.1.push(floor.first_time(round)?);
        let measured = runtime.block_on(in_turn(&candidates, round, args.time()))?;
        rates.iter_mut().zip(measured).for_each(|(all, one)| all.push(one));
    }
    let [duplicate, first, near] = <[Vec<f64>; 3]>::try_from(rates)
        .map_err(|_| anyhow::anyhow!("three candidates have three rates"))?
        .map(median);
    let (floor_duplicate, floor_first) = (median(floors.0), median(floors.1));
    let what = "Redis: duplicates to redis-benchmark's EVALSHA";
    add(report, what, duplicate, floor_duplicate, 0.7);
    let what = "Redis: first-time, in commands, to redis-benchmark's EVALSHA";
    add(report, what, 2.0 * first, floor_first, 0.6);
    add(report, "Redis: duplicates with the near cache to without", near, duplicate, 5.0);
    Ok(())
}

/// redis-benchmark with the least scripts.
struct Floor {
    port: String,
    claim: String,
    complete: String,
    replay: String,
}

impl Floor {
    fn new(server: &RedisServer) -> Result<Self> {
        let load = |text: &str| server.cli(&["SCRIPT", "LOAD", text]);
        let trimmed = |hash: String| hash.trim().to_owned();
        server.cli(&["SET", "floor:known", &"x".repeat(CLAIM_BYTES + OUTCOME_BYTES)])?;
        Ok(Self {
            port: server.port().to_string(),
            claim: trimmed(load(CLAIM)?),
            complete: trimmed(load(COMPLETE)?),
            replay: trimmed(load(REPLAY)?),
        })
    }

    fn duplicates(&self) -> Result<f64> {
        self.rate(&self.replay, "floor:known", "-")
    }

    /// Commands a second: as many claims as completions, so the mean time of both counts.
    fn first_time(&self, round: u64) -> Result<f64> {
        let key = format!("floor:{round}:__rand_int__");
        let claims = self.rate(&self.claim, &key, &"x".repeat(CLAIM_BYTES))?;
        let value = "x".repeat(CLAIM_BYTES + OUTCOME_BYTES);
        let completions = self.rate(&self.complete, &key, &value)?;
        Ok(2.0 / (1.0 / claims + 1.0 / completions))
    }

    fn rate(&self, hash: &str, key: &str, value: &str) -> Result<f64> {
        let output = Command::new("redis-benchmark")
            .args(["-p", &self.port, "-c", &CALLERS.to_string(), "-n", COMMANDS])
            .args(["-r", "1000000000", "--csv", "evalsha", hash, "1", key, value])
            .output()
            .context("cannot start redis-benchmark: run `cargo xtask services`")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-benchmark said: {text}");
        // The last line has the name, the rate and the latencies, each in quotes.
        let line = text.lines().last().unwrap_or_default();
        let rate = line.split("\",\"").nth(1).map(|rate| rate.trim_matches('"'));
        rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("no rate in: {text}"))
    }
}
