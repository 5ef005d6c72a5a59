//! `justonce sagas`: sagas, through the admin API of a gateway on the same store.

use clap::{Args, Subcommand};
use justonce_admin_api::{RetryRequest, SagaFilter};

use super::admin::{ByOption, Session, ShowOptions};
use super::print;

/// What to do with sagas.
#[derive(Debug, Subcommand)]
pub(super) enum SagasCommand {
    /// List sagas; without options, the first hundred
    List(SagaFilter),
    /// Show a saga: the state of its steps, and what keeps failing
    Show(ShowOptions),
    /// Make a stuck or parked saga due again: the next completer or caller drives it on
    Retry(RetryOptions),
}

/// Which saga is retried, and by whom.
#[derive(Debug, Args)]
pub(super) struct RetryOptions {
    /// The id of its record, or at least the first 8 digits of it
    id: String,
    #[command(flatten)]
    by: ByOption,
}

/// Carries out a command.
pub(super) async fn run(session: &Session, command: SagasCommand) -> anyhow::Result<()> {
    let client = &session.client;
    match command {
        SagasCommand::List(filter) => session.show(&client.sagas(&filter).await?, print::sagas),
        SagasCommand::Show(ShowOptions { id, contents }) => {
            session.show(&client.saga(&id, contents).await?, print::saga);
        }
        SagasCommand::Retry(RetryOptions { id, by }) => {
            let request = RetryRequest { by: by.name()? };
            session.show(&client.retry(&id, &request).await?, print::retried);
        }
    }
    Ok(())
}
