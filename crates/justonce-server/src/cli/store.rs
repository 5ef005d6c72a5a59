//! `justonce store`: backups of the embedded store, checks, and stores from backups.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use justonce::Timestamp;
use justonce::embedded::Bounds;
use justonce::embedded::backup::{BackupReport, RestoreOptions, Unpacker, check, restore};
use justonce_admin_api::ClientError;

use super::admin::{AdminOptions, explain};
use super::meter::Meter;
use super::print::say;
use crate::stores;

/// So many damaged records are named.
const MAX_NAMED: usize = 100;

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Make a backup: of a running gateway's store, through its admin API, or of a closed one
    Backup(BackupOptions),
    /// Read everything of a closed store or of a backup, and say what is damaged; nothing in it is
    /// changed
    Check(CheckOptions),
    /// Make a store from a backup. What was acknowledged after the backup is not in it
    #[command(after_long_help = AFTER_RESTORE)]
    Restore(RestoreCommand),
}

/// Of what a backup is made, and where.
#[derive(Debug, Args)]
pub(super) struct BackupOptions {
    /// The directory of the backup, on this machine: it is empty, or does not exist
    directory: PathBuf,
    /// The directory of a closed store. Without it, the store of the running gateway is backed up
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    #[command(flatten)]
    at: AdminOptions,
}

/// What to check.
#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// The directory of a store that no process has open, or of a backup
    path: PathBuf,
}

/// What to restore, and what to make of operations that may be lost.
#[derive(Debug, Args)]
pub(super) struct RestoreCommand {
    /// The directory of the backup
    backup: PathBuf,
    /// The directory of the new store: it is empty, or does not exist
    path: PathBuf,
    /// Take what is not found for new: nothing was executed after the backup
    #[arg(long)]
    accept_lost: bool,
    /// How old a key that carries its date (UUIDv7) may be when it is first used
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration,
          default_value = "1h")]
    key_age: Duration,
    /// How far clients' clocks may be wrong. For so long after the restore, new operations with
    /// keys that carry their date become unknown too
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration,
          default_value = "10s")]
    clock_skew: Duration,
    /// For so long after the restore, operations whose keys carry no date and are not found become
    /// unknown too, also the new ones
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration,
          default_value = "0s")]
    hold_undated: Duration,
    /// When the backup was made, where its machine's clock was wrong, as in 2026-11-19T15:30:00Z
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339)]
    taken_at: Option<SystemTime>,
}

const AFTER_RESTORE: &str = "\
What was acknowledged between the backup and the loss of the store is not in the restored one:

- Operations whose keys carry a date (UUIDv7) of that time and that are not found become unknown,
  except under `rerun`. Resolve them as others: `justonce keys list --state unknown`.
- What was interrupted or waiting for a retry at the backup may have gone on. It becomes unknown
  too, except under `rerun`.
- Operations with other keys cannot be told apart from new ones. They are new, and may be executed
  again, unless --hold-undated makes all of them unknown for a while.

An empty file `accept-lost` in the restored directory ends this at the next start.";

/// Carries out a command.
///
/// # Errors
///
/// If it cannot be carried out. What a check finds is no error but has an exit code.
pub(super) fn run(command: StoreCommand) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Backup(options) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            match runtime.block_on(back_up(&options)) {
                Ok(report) => Ok(backed_up(&options.directory, &report)),
                Err(error) => explain(error.downcast::<ClientError>()?),
            }
        }
        StoreCommand::Check(options) => checked(&options.path),
        StoreCommand::Restore(options) => restored(&options),
    }
}

async fn back_up(options: &BackupOptions) -> anyhow::Result<BackupReport> {
    let mut unpacker = Unpacker::new(&options.directory)?;
    let mut meter = Meter::start("backing up");
    if let Some(path) = &options.store {
        if !path.join("records").is_dir() {
            bail!("there is no store in {}", path.display());
        }
        let store = stores::embedded(path, Bounds::default())?;
        let backup = store.backups().begin().await?;
        backup.write_to(&mut unpacker, &mut |progress| meter.show(progress))?;
        return Ok(unpacker.finish()?);
    }
    let mut stream = options.at.client()?.backup().await?;
    while let Some(part) = stream.chunk().await? {
        let written = unpacker.write_all(&part);
        written.with_context(|| format!("cannot write to {}", options.directory.display()))?;
        meter.show(unpacker.progress());
    }
    Ok(unpacker.finish()?)
}

fn backed_up(directory: &Path, report: &BackupReport) -> ExitCode {
    let (files, bytes) = (report.files, HumanBytes(report.bytes));
    say(&format!(
        "{} is a backup of {}: {files} files, {bytes}",
        directory.display(),
        time(report.taken_at)
    ));
    for file in &report.damaged {
        eprintln!("justonce: {file} was damaged in the store already, and is so in the backup");
    }
    if report.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn checked(path: &Path) -> anyhow::Result<ExitCode> {
    let mut meter = Meter::start("checking");
    let report = check(path, &mut |progress| meter.show(progress))?;
    drop(meter);
    let what = match report.taken_at {
        Some(taken_at) => format!("a backup of {}", time(taken_at)),
        None => "a store".to_owned(),
    };
    say(&format!(
        "{} is {what}: {} records, {} rows of the index, {} rows of the callers, {} batches in the \
         log only; {} files, {}",
        path.display(),
        report.records,
        report.index_rows,
        report.rows,
        report.logged,
        report.files,
        HumanBytes(report.bytes)
    ));
    for problem in &report.problems {
        eprintln!("justonce: {problem}");
    }
    for id in report.damaged_records.iter().take(MAX_NAMED) {
        eprintln!("justonce: record {id} is damaged");
    }
    let more = report.damaged_records.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        eprintln!("justonce: and {more} more records");
    }
    if report.is_good() {
        say("Nothing is damaged.");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn restored(command: &RestoreCommand) -> anyhow::Result<ExitCode> {
    let mut options = RestoreOptions::default()
        .key_age(command.key_age)
        .clock_skew(command.clock_skew)
        .hold_undated(command.hold_undated);
    if command.accept_lost {
        options = options.accept_lost();
    }
    if let Some(taken_at) = command.taken_at {
        options = options.taken_at(Timestamp::from(taken_at));
    }
    let mut meter = Meter::start("restoring");
    let (backup, path) = (&command.backup, &command.path);
    let restored = restore(backup, path, &options, &mut |progress| meter.show(progress))?;
    drop(meter);
    say(&format!(
        "{} is the store as it was at {}. What was acknowledged after that is not in it.",
        path.display(),
        time(restored.taken_at)
    ));
    match restored.held {
        None if restored.held_before => say(
            "Nothing counts as lost since this backup, as --accept-lost says. But the backup is of a \
             store that had been restored before: what that restore may have lost is still held.",
        ),
        None => say("What is not found is new, as --accept-lost says."),
        Some((from, until)) => {
            say(&format!(
                "- Operations whose keys carry a date (UUIDv7) from {} to {} and that are not \
                 found become unknown, except under `rerun`. Resolve them: `justonce keys list \
                 --state unknown`.",
                time(from),
                time(until)
            ));
            say("- What was interrupted or waiting for a retry at the backup becomes unknown too.");
            say(&match restored.undated_until {
                Some(until) => format!(
                    "- Operations whose keys carry no date and that are not found become unknown \
                     until {}, also the new ones.",
                    time(until)
                ),
                None => {
                    "- Operations whose keys carry no date and that are not found are new, also \
                         if they were executed after the backup: compare with the service's books \
                         what happened since."
                        .to_owned()
                }
            });
        }
    }
    for file in &restored.damaged {
        eprintln!("justonce: {file} was damaged already when the backup was made");
    }
    Ok(ExitCode::SUCCESS)
}

fn time(moment: Timestamp) -> String {
    let since = Duration::from_millis(moment.as_millis());
    let time = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}
