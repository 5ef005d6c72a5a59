//! What `justonce keys` can be told.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where the admin API is, and what to do there.
#[derive(Debug, Args)]
pub struct KeysOptions {
    #[command(flatten)]
    /// Where the admin API is.
    pub at: AdminOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// Where the admin API is, and how its answers are shown.
#[derive(Debug, Args)]
pub struct AdminOptions {
    /// Where the gateway's operators connect, as its setting `admin`: an address and a port, with
    /// or without `http://`
    #[arg(
        long,
        global = true,
        env = "JUSTONCE_ADMIN",
        value_name = "ADDRESS",
        default_value = "http://127.0.0.1:8081"
    )]
    pub admin: String,
    /// The admin token; others on this machine can read it from the command line
    #[arg(
        long,
        global = true,
        env = "JUSTONCE_ADMIN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// A file that holds the admin token, instead
    #[arg(long, global = true, env = "JUSTONCE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON, as the admin API gives it
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do with records.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List records; without options, the first hundred
    List(ListOptions),
    /// Show a record with its timeline
    Show(ShowOptions),
    /// Say that an unknown operation took effect, and what its answer is
    Complete(OutcomeOptions),
    /// Say that an unknown operation failed for good, and what its answer is
    Fail(OutcomeOptions),
    /// Say that an unknown operation did not take effect: the next request executes it
    Release(ResolveOptions),
    /// End the retention of an operation that has ended: its outcome is gone, and late arrivals
    /// are refused where the route says so
    Expire(GiveUpOptions),
    /// Remove the record of an operation that has ended, and its tombstone: the next request with
    /// its key executes again, however late it comes
    Erase(GiveUpOptions),
}

/// Which records.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// in_progress, completed, failed, released, unknown or tombstone
    #[arg(long)]
    pub state: Option<String>,
    /// Of this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Of this route, by its name
    #[arg(long)]
    pub route: Option<String>,
    /// Of this kind of operation
    #[arg(long)]
    pub operation: Option<String>,
    /// Whose key begins so
    #[arg(long)]
    pub prefix: Option<String>,
    /// Whose key has this text in it
    #[arg(long)]
    pub text: Option<String>,
    /// That have not changed for this long, as in 1h
    #[arg(long, value_name = "TIME")]
    pub unchanged_for: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Where the page before ended
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

/// Which record.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// Its name, or at least the first 8 digits of it
    pub id: String,
    /// Show the headers and the body of its outcome too
    #[arg(long)]
    pub contents: bool,
}

/// Who resolves which record, and why.
#[derive(Debug, Args)]
pub struct ResolveOptions {
    /// Its name, or at least the first 8 digits of it
    pub id: String,
    /// The fence that `show` or `list` printed: the resolution is about that claim and no other
    #[arg(long, value_name = "N")]
    pub fence: u64,
    /// How you know; it is kept in the timeline
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// Who you are; it is kept in the timeline. Without it, your login
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Who gives up which outcome, and why.
#[derive(Debug, Args)]
pub struct GiveUpOptions {
    /// Its name, or at least the first 8 digits of it
    pub id: String,
    /// The fence that `show` or `list` printed: a later operation with this key is left alone
    #[arg(long, value_name = "N")]
    pub fence: u64,
    /// Why; it is written to the gateway's log
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// Who you are; it is written to the gateway's log. Without it, your login
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// A resolution with an answer.
#[derive(Debug, Args)]
pub struct OutcomeOptions {
    #[command(flatten)]
    /// Who, which and why.
    pub resolve: ResolveOptions,
    /// The status of the answer
    #[arg(long, value_name = "CODE")]
    pub status: Option<u16>,
    /// A header of the answer, as in 'content-type: application/json'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The body of the answer
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,
    /// A file with the body of the answer
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,
}
