//! `justonce keys`: records, through the admin API of a running gateway.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use data_encoding::BASE64;
use justonce_admin_api::{
    KeyFilter, OutcomeInput, Removal, RemoveRequest, Resolution, ResolveRequest,
};

use super::admin::{ByOption, Session, ShowOptions};
use super::print;

/// What to do with records.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// List records; without options, the first hundred
    List(KeyFilter),
    /// Show a record with its timeline
    Show(ShowOptions),
    /// Say that an unknown operation took effect, and with which outcome
    Complete(OutcomeOptions),
    /// Say that an unknown operation failed for good, and with which outcome
    Fail(OutcomeOptions),
    /// Say that an unknown operation did not take effect: the next request executes it
    Release(ChangeOptions),
    /// End the retention of an operation that has ended: its outcome is removed, and late requests
    /// are refused where the route says so
    Expire(ChangeOptions),
    /// Remove the record of an operation that has ended, and its tombstone: the next request with
    /// its key executes again, however late it comes
    Erase(ChangeOptions),
}

/// Which record is changed, by whom and why.
#[derive(Debug, Args)]
pub(super) struct ChangeOptions {
    /// Its id, or at least the first 8 digits of it
    id: String,
    /// The fence that `show` or `list` printed: a later claim of the same key is not changed
    #[arg(long, value_name = "N")]
    fence: u64,
    /// The reason; it is kept in the timeline, or in the gateway's log if the record is removed
    #[arg(long, value_name = "TEXT")]
    why: String,
    #[command(flatten)]
    by: ByOption,
}

/// A change with the outcome that clients get.
#[derive(Debug, Args)]
pub(super) struct OutcomeOptions {
    #[command(flatten)]
    change: ChangeOptions,
    #[command(flatten)]
    outcome: OutcomeArgs,
    /// A header of the outcome, as in 'content-type: application/json'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
}

/// An outcome without its headers: some of this is needed.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct OutcomeArgs {
    /// The status of the outcome; one without a body has only this, as in --status 204
    #[arg(long, value_name = "CODE")]
    status: Option<u16>,
    /// The body of the outcome
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with the body of the outcome
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
}

/// Carries out a command.
pub(super) async fn run(session: &Session, command: KeysCommand) -> anyhow::Result<()> {
    use KeysCommand::{Complete, Erase, Expire, Fail, List, Release, Show};
    match command {
        List(filter) => session.show(&session.client.keys(&filter).await?, print::keys),
        Show(ShowOptions { id, contents }) => {
            session.show(&session.client.key(&id, contents).await?, print::key);
        }
        Complete(OutcomeOptions { change, outcome, headers }) => {
            resolve(session, Resolution::Complete, change, Some(outcome.read(headers)?)).await?;
        }
        Fail(OutcomeOptions { change, outcome, headers }) => {
            resolve(session, Resolution::Fail, change, Some(outcome.read(headers)?)).await?;
        }
        Release(change) => resolve(session, Resolution::Release, change, None).await?,
        Expire(change) => remove(session, Removal::Expire, change).await?,
        Erase(change) => remove(session, Removal::Erase, change).await?,
    }
    Ok(())
}

async fn resolve(
    session: &Session,
    how: Resolution,
    change: ChangeOptions,
    outcome: Option<OutcomeInput>,
) -> anyhow::Result<()> {
    let ChangeOptions { id, fence, why, by } = change;
    let request = ResolveRequest { fence, by: by.name()?, why, outcome };
    session.show(&session.client.resolve(&id, how, &request).await?, print::resolved);
    Ok(())
}

async fn remove(session: &Session, how: Removal, change: ChangeOptions) -> anyhow::Result<()> {
    let ChangeOptions { id, fence, why, by } = change;
    let request = RemoveRequest { fence, by: by.name()?, why };
    session.show(&session.client.remove(&id, how, &request).await?, print::removed);
    Ok(())
}

impl OutcomeArgs {
    fn read(self, headers: Vec<(String, String)>) -> anyhow::Result<OutcomeInput> {
        let Self { status, body, body_file } = self;
        let read = |file: PathBuf| {
            let bytes = std::fs::read(&file);
            bytes.with_context(|| format!("cannot read {}", file.display()))
        };
        let body_base64 = body_file.map(read).transpose()?.map(|bytes| BASE64.encode(&bytes));
        Ok(OutcomeInput { status, headers, body, body_base64, json: None })
    }
}

fn header(line: &str) -> Result<(String, String), &'static str> {
    let (name, value) =
        line.split_once(':').ok_or("a header is written 'content-type: application/json'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn an_outcome_has_more_than_headers() {
        let is_accepted = |outcome: &[&str]| {
            let change = ["keys", "complete", "a7a7a7a7", "--fence", "1", "--why", "in the books"];
            let command = KeysCommand::augment_subcommands(Command::new("keys"));
            command.try_get_matches_from(change.iter().chain(outcome)).is_ok()
        };
        assert!(!is_accepted(&[]));
        assert!(!is_accepted(&["--header", "a: b"]));
        assert!(is_accepted(&["--status", "204", "--header", "a: b"]));
        assert!(is_accepted(&["--body", "paid", "--header", "a: b"]));
    }
}
