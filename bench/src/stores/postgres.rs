//! The PostgreSQL store beside pgbench on the same server: the bare INSERT … ON CONFLICT and the
//! bare UPDATE, each a statement and a commit of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use justonce::OnLapsed;
use justonce::postgres::PostgresStore;
use justonce::store::{Cached, SharedStore};
use justonce_testbed::{PostgresServer, program};

use super::engine::{duplicates, first_time};
use super::run::{SLICE, StoresArgs, add, in_turn};
use crate::load::runtime;
use crate::report::{Report, median};

/// How many callers at once.
const CALLERS: u64 = 16;

/// The floor's table and its script: as many bytes as ours, and nothing else.
const TABLE: &str = "CREATE TABLE floor (id bytea PRIMARY KEY, state int NOT NULL, body bytea)";
const SCRIPT: &str = include_str!("floor.sql");

pub(super) fn measure(
    args: &StoresArgs,
    server: &PostgresServer,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let runtime = runtime()?;
    let open = || runtime.block_on(PostgresStore::open(server.url()));
    let store: SharedStore = Arc::new(open()?);
    let near: SharedStore = Arc::new(Cached::near(open()?));
    server.psql(TABLE)?;
    let script = directory.join("floor.sql");
    std::fs::write(&script, SCRIPT)?;
    let mut floor = Vec::new();
    let mut rates = vec![Vec::new(); 4];
    let candidates = runtime.block_on(async {
        anyhow::Ok([
            first_time(Arc::clone(&store), CALLERS, OnLapsed::Hold)?,
            first_time(Arc::clone(&store), CALLERS, OnLapsed::Rerun)?,
            duplicates(store, CALLERS).await?,
            duplicates(near, CALLERS).await?,
        ])
    })?;
    for round in 0..args.rounds {
        // In slices, so that all meet the same moods of the machine.
        let (mut floors, mut sums) = (0.0, [0.0; 4]);
        for slice in 0..args.seconds {
            floors += pgbench(server, &script, SLICE)?;
            let number = round * args.seconds + slice;
            let measured = runtime.block_on(in_turn(&candidates, number, SLICE))?;
            sums.iter_mut().zip(measured).for_each(|(sum, one)| *sum += one);
        }
        let slices = args.seconds.max(1) as f64;
        floor.push(floors / slices);
        rates.iter_mut().zip(sums).for_each(|(all, sum)| all.push(sum / slices));
    }
    let [hold, rerun, duplicate, near] = <[Vec<f64>; 4]>::try_from(rates)
        .map_err(|_| anyhow::anyhow!("four candidates have four rates"))?
        .map(median);
    let floor = median(floor);
    add(report, "PostgreSQL: first-time under `hold` to pgbench", hold, floor, 0.7);
    println!("  under `rerun`, whose claim need not wait for the disk: {rerun:.0}/s");
    add(report, "PostgreSQL: duplicates with the near cache to without", near, duplicate, 5.0);
    Ok(())
}

fn pgbench(server: &PostgresServer, script: &Path, time: Duration) -> Result<f64> {
    let places = ["17", "16", "15", "14"].map(|v| format!("/usr/lib/postgresql/{v}/bin"));
    let places = places.each_ref().map(Path::new);
    let output = Command::new(program("pgbench", &places, "postgresql")?)
        .args(["-n", "-M", "prepared", "-c", &CALLERS.to_string(), "-j", "2"])
        .args(["-T", &time.as_secs().to_string(), "-f"])
        .arg(script)
        .arg(server.url())
        .output()
        .context("cannot start pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = || format!("pgbench said: {text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), failed());
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    rate.with_context(failed)
}
