//! What `justonce sagas` can be told.

use clap::{Args, Subcommand};

use crate::keys::AdminOptions;

/// Where the admin API is, and what to do there.
#[derive(Debug, Args)]
pub struct SagasOptions {
    #[command(flatten)]
    /// Where the admin API is.
    pub at: AdminOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: SagasCommand,
}

/// What to do with sagas.
#[derive(Debug, Subcommand)]
pub enum SagasCommand {
    /// List sagas; without options, the first hundred
    List(SagaListOptions),
    /// Show a saga: what became of its steps, and what keeps failing
    Show(SagaShowOptions),
    /// Make a stuck or parked saga due again: the next completer or caller drives it on
    Retry(SagaRetryOptions),
}

/// Which sagas.
#[derive(Debug, Args)]
pub struct SagaListOptions {
    /// running, stuck, parked, done or rolled_back
    #[arg(long)]
    pub state: Option<String>,
    /// Of this name
    #[arg(long)]
    pub saga: Option<String>,
    /// Of this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Where the page before ended
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

/// Which saga.
#[derive(Debug, Args)]
pub struct SagaShowOptions {
    /// The name of its record, or at least the first 8 digits of it
    pub id: String,
    /// Show its context, or its answer, too
    #[arg(long)]
    pub contents: bool,
}

/// Who retries which saga.
#[derive(Debug, Args)]
pub struct SagaRetryOptions {
    /// The name of its record, or at least the first 8 digits of it
    pub id: String,
    /// Who you are; it is kept in the timeline. Without it, your login
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}
