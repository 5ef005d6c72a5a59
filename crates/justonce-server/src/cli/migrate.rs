//! `justonce migrate`: brings the tables in PostgreSQL up to date, or shows what that would do.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use justonce::postgres::migrate;

use super::print::say;
use crate::config::{self, StoreUrl};
use crate::stores::with_causes;

/// What to bring up to date, and whether to do it.
#[derive(Args, Clone, Debug)]
pub(super) struct MigrateOptions {
    /// The database: `postgres://…`, or the store `tiered:…` that it is part of
    #[arg(long, value_name = "URL", env = "JUSTONCE_STORE", hide_env_values = true)]
    store: String,
    /// The schema that holds the tables
    #[arg(long, value_name = "NAME", env = "JUSTONCE_POSTGRES_SCHEMA", default_value = "justonce")]
    schema: String,
    /// Print the SQL, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
///
/// # Errors
///
/// If there is no such database, or it refuses.
pub(super) fn run(options: &MigrateOptions) -> anyhow::Result<ExitCode> {
    let url = match config::store_url(&options.store)? {
        StoreUrl::Postgres(url) | StoreUrl::Tiered { postgres: url, .. } => url,
        other => bail!("{other} needs no tables: only PostgreSQL does, as in postgres://…"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let failed = |error: migrate::MigrateError| {
        anyhow!("cannot bring {url} up to date: {}", with_causes(&error))
    };
    if options.dry_run {
        let steps = runtime.block_on(migrate::pending(url.reveal(), &options.schema));
        let steps = steps.map_err(failed)?;
        match steps.is_empty() {
            true => say(&format!("-- {url} is up to date")),
            false => say(migrate::script(&steps).trim_end()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let steps = runtime.block_on(migrate::apply(url.reveal(), &options.schema));
    let steps = steps.map_err(failed)?;
    for step in &steps {
        say(&format!("applied step {}: {}", step.number, step.name));
    }
    say(&format!("{url} is up to date"));
    Ok(ExitCode::SUCCESS)
}
