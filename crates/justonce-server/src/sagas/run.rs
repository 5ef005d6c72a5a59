//! Carries out a command, and tells how it went.

use std::process::ExitCode;

use anyhow::Context;
use percent_encoding::utf8_percent_encode;

use super::options::{
    SagaListOptions, SagaRetryOptions, SagaShowOptions, SagasCommand, SagasOptions,
};
use super::print;
use crate::admin::wire::Retrying;
use crate::keys::client::Client;
use crate::keys::{LITERAL, by, full_id, query, refused, told};

/// Carries out a command.
///
/// # Errors
///
/// If the admin API cannot be reached, or answers what nobody understands.
pub fn run(options: &SagasOptions) -> anyhow::Result<ExitCode> {
    let client = Client::new(&options.at)?;
    let json = options.at.json;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &options.command {
            SagasCommand::List(wanted) => list(&client, wanted, json).await,
            SagasCommand::Show(wanted) => show(&client, wanted, json).await,
            SagasCommand::Retry(wanted) => retry(&client, wanted, json).await,
        }
    })
}

async fn list(client: &Client, wanted: &SagaListOptions, json: bool) -> anyhow::Result<ExitCode> {
    let limit = wanted.limit.map(|limit| limit.to_string());
    let parts = [
        ("state", &wanted.state),
        ("saga", &wanted.saga),
        ("tenant", &wanted.tenant),
        ("limit", &limit),
        ("after", &wanted.after),
    ];
    told(client.get(&format!("/sagas?{}", query(&parts))).await?, json, print::page)
}

async fn show(client: &Client, wanted: &SagaShowOptions, json: bool) -> anyhow::Result<ExitCode> {
    let contents = if wanted.contents { "?contents=true" } else { "" };
    let id = utf8_percent_encode(&wanted.id, LITERAL);
    told(client.get(&format!("/sagas/{id}{contents}")).await?, json, print::detail)
}

async fn retry(client: &Client, wanted: &SagaRetryOptions, json: bool) -> anyhow::Result<ExitCode> {
    let id = match full_id(client, &wanted.id).await? {
        Ok(id) => id,
        Err((status, problem)) => return Ok(refused(status, &problem)),
    };
    let said = Retrying { by: by(wanted.by.as_ref())? };
    let body = serde_json::to_vec(&said).context("the retry cannot be written as JSON")?;
    told(client.post(&format!("/sagas/{id}/retry"), body).await?, json, print::retried)
}
