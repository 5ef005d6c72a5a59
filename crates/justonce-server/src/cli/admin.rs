//! What `keys` and `sagas` share: the admin API's address, their options, and showing responses.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use http::StatusCode;
use justonce_admin_api::{ApiResponse, Client, ClientError};

use super::print;
use crate::config::AdminToken;

/// The request was understood and refused: no such record, not in the right state, or an old fence.
const REFUSED: u8 = 3;
/// The request could not be understood, as with wrong options.
const MISUSED: u8 = 2;

/// A command that uses the admin API of a running gateway.
#[derive(Debug, Args)]
pub(super) struct AdminCommand<C: Subcommand> {
    #[command(flatten)]
    at: AdminOptions,
    /// Print JSON, as the admin API gives it
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: C,
}

/// Where the admin API is.
#[derive(Debug, Args)]
pub(super) struct AdminOptions {
    /// The gateway's admin address, as its setting `admin`: an address and a port, with or without
    /// `http://`
    #[arg(
        long,
        global = true,
        env = "JUSTONCE_ADMIN",
        value_name = "ADDRESS",
        default_value = "http://127.0.0.1:8081"
    )]
    admin: String,
    /// The admin token; others on this machine can read it from the command line
    #[arg(
        long,
        global = true,
        env = "JUSTONCE_ADMIN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// A file that holds the admin token, instead
    #[arg(long, global = true, env = "JUSTONCE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What to show.
#[derive(Debug, Args)]
pub(super) struct ShowOptions {
    /// The id of its record, or at least the first 8 digits of it
    pub(super) id: String,
    /// Show the contents of its outcome too, and the context of a saga
    #[arg(long)]
    pub(super) contents: bool,
}

/// Who makes a change.
#[derive(Debug, Args)]
pub(super) struct ByOption {
    /// Who you are; it is kept in the timeline, or in the gateway's log. Without it, your login
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// A client, and how its replies are shown.
pub(super) struct Session {
    pub(super) client: Client,
    json: bool,
}

impl<C: Subcommand> AdminCommand<C> {
    /// Runs the command with a client of the admin API.
    pub(super) fn run(
        self,
        run: impl AsyncFnOnce(&Session, C) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        let session = Session { client: self.at.client()?, json: self.json };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(run(&session, self.command)) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => explain(error.downcast::<ClientError>()?),
        }
    }
}

impl AdminOptions {
    /// A client of the admin API.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let client = Client::new(&self.admin)?;
        Ok(match (&self.token, &self.token_file) {
            (Some(token), _) => client.token(token.trim()),
            (None, Some(file)) => {
                let token = AdminToken::File(file.clone()).read();
                let token = token
                    .with_context(|| format!("cannot read the token in {}", file.display()))?;
                client.token(token.reveal())
            }
            (None, None) => client,
        })
    }
}

impl ByOption {
    /// The name that was given, or the login.
    pub(super) fn name(self) -> anyhow::Result<String> {
        let login = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let by = self.by.or_else(login).filter(|by| !by.trim().is_empty());
        by.context("it is not known who you are: say it with --by NAME")
    }
}

impl Session {
    /// Shows a response: as text, or as the JSON it is.
    pub(super) fn show<T>(&self, response: &ApiResponse<T>, print: impl FnOnce(&T)) {
        if self.json {
            print::say(&String::from_utf8_lossy(&response.json));
        } else {
            print(&response.value);
        }
    }
}

/// Says what to do about an error. A refusal has an exit code of its own.
pub(super) fn explain(error: ClientError) -> anyhow::Result<ExitCode> {
    match error {
        ClientError::Refused(status, problem) => {
            eprintln!("justonce: {}: {}", problem.code, problem.detail);
            Ok(match status {
                StatusCode::NOT_FOUND | StatusCode::CONFLICT => ExitCode::from(REFUSED),
                StatusCode::BAD_REQUEST => ExitCode::from(MISUSED),
                _ => ExitCode::FAILURE,
            })
        }
        ClientError::Unauthorized => {
            bail!("the gateway requires its admin token: use JUSTONCE_ADMIN_TOKEN or --token-file")
        }
        error @ ClientError::Unreachable(..) => Err(anyhow!(
            "{:#}. Is `justonce serve` running there? Another address is given with --admin",
            anyhow::Error::new(error)
        )),
        error => Err(error.into()),
    }
}
