//! Sagas on PostgreSQL beside DBOS on the same server.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use justonce::postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};

use super::ours::{CALLERS, sagas};
use super::run::{SagaArgs, add};
use crate::load::runtime;
use crate::report::{Report, median};

/// What DBOS runs.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/dbos/saga.py");
/// How many Python processes share the callers: one a core, since one uses no more.
const PROCESSES: u64 = 2;

pub(super) fn measure(args: &SagaArgs, python: &Path, report: &mut Report) -> Result<()> {
    let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
    let server = PostgresServer::start(options)?;
    let runtime = runtime()?;
    let store = runtime.block_on(PostgresStore::open(server.url()))?;
    let candidate = runtime.block_on(async { sagas(Arc::new(store)) })?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first round of ours only warms up; the script warms up by itself.
    for round in 0..=args.rounds {
        let rate = runtime.block_on(candidate(round, args.time()))?;
        if round > 0 {
            ours.push(rate);
            theirs.push(dbos(args, python, &server)?);
        }
    }
    let what = "sagas on PostgreSQL to workflows of DBOS on the same server";
    add(report, what, median(ours), median(theirs), 10.0);
    Ok(())
}

fn dbos(args: &SagaArgs, python: &Path, server: &PostgresServer) -> Result<f64> {
    let url = server.url_of("dbos").replacen("postgres://", "postgresql://", 1);
    let numbers = [args.seconds, CALLERS, PROCESSES].map(|number| number.to_string());
    let output = Command::new(python).arg(SCRIPT).arg(url).args(numbers).output();
    let output = output.with_context(|| format!("cannot start {}", python.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = || format!("DBOS said: {text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), failed());
    let rate = text.lines().find_map(|line| line.strip_prefix("rate ")?.parse().ok());
    rate.with_context(failed)
}
