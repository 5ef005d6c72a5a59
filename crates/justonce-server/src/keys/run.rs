//! Carries out a command, and tells how it went.

use std::process::ExitCode;

use anyhow::{Context, bail};
use data_encoding::BASE64;
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use super::client::{Answered, Client, parsed};
use super::options::{
    GiveUpOptions, KeysCommand, KeysOptions, ListOptions, OutcomeOptions, ResolveOptions,
    ShowOptions,
};
use super::print;
use crate::admin::wire::{GivenOutcome, GivingUp, KeyDetail, ProblemBody, Resolving};

/// The request was understood, and refused: there is no such record, it is not in the right state,
/// or its fence is old.
const REFUSED: u8 = 3;
/// The request could not be understood, as with wrong options.
const MISUSED: u8 = 2;
/// What stands for itself in a query.
pub(crate) const LITERAL: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Carries out a command.
///
/// # Errors
///
/// If the admin API cannot be reached, or answers what nobody understands.
pub fn run(options: &KeysOptions) -> anyhow::Result<ExitCode> {
    let client = Client::new(&options.at)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &options.command {
            KeysCommand::List(wanted) => list(&client, wanted, options.at.json).await,
            KeysCommand::Show(wanted) => show(&client, wanted, options.at.json).await,
            KeysCommand::Release(who) => {
                resolve(&client, "release", who, None, options.at.json).await
            }
            KeysCommand::Complete(what) => settle(&client, "complete", what, options.at.json).await,
            KeysCommand::Fail(what) => settle(&client, "fail", what, options.at.json).await,
            KeysCommand::Expire(who) => give_up(&client, "expire", who, options.at.json).await,
            KeysCommand::Erase(who) => give_up(&client, "erase", who, options.at.json).await,
        }
    })
}

async fn list(client: &Client, wanted: &ListOptions, json: bool) -> anyhow::Result<ExitCode> {
    let limit = wanted.limit.map(|limit| limit.to_string());
    let parts = [
        ("state", &wanted.state),
        ("tenant", &wanted.tenant),
        ("route", &wanted.route),
        ("operation", &wanted.operation),
        ("prefix", &wanted.prefix),
        ("text", &wanted.text),
        ("unchanged_for", &wanted.unchanged_for),
        ("limit", &limit),
        ("after", &wanted.after),
    ];
    told(client.get(&format!("/keys?{}", query(&parts))).await?, json, print::page)
}

async fn show(client: &Client, wanted: &ShowOptions, json: bool) -> anyhow::Result<ExitCode> {
    let contents = if wanted.contents { "?contents=true" } else { "" };
    let id = utf8_percent_encode(&wanted.id, LITERAL);
    told(client.get(&format!("/keys/{id}{contents}")).await?, json, print::detail)
}

async fn settle(
    client: &Client,
    how: &str,
    what: &OutcomeOptions,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if what.status.is_none() && what.body.is_none() && what.body_file.is_none() {
        eprintln!(
            "justonce: say what clients are to hear: --status CODE, and --body TEXT or --body-file \
             FILE. An answer without a body has a status only, as in --status 204"
        );
        return Ok(ExitCode::from(MISUSED));
    }
    resolve(client, how, &what.resolve, Some(given(what)?), json).await
}

/// The answer that the options tell.
fn given(what: &OutcomeOptions) -> anyhow::Result<GivenOutcome> {
    let mut headers = Vec::new();
    for line in &what.headers {
        let Some((name, value)) = line.split_once(':') else {
            bail!("{line:?} is no header, as in 'content-type: application/json'");
        };
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let mut outcome = GivenOutcome {
        status: what.status,
        headers,
        body: what.body.clone(),
        ..GivenOutcome::default()
    };
    if let Some(file) = &what.body_file {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        outcome.body_base64 = Some(BASE64.encode(&bytes));
    }
    Ok(outcome)
}

async fn resolve(
    client: &Client,
    how: &str,
    who: &ResolveOptions,
    outcome: Option<GivenOutcome>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let id = match full_id(client, &who.id).await? {
        Ok(id) => id,
        Err((status, problem)) => return Ok(refused(status, &problem)),
    };
    let by = by(who.by.as_ref())?;
    let said = Resolving { fence: who.fence, by, why: who.why.clone(), outcome };
    let body = serde_json::to_vec(&said).context("the resolution cannot be written as JSON")?;
    told(client.post(&format!("/keys/{id}/{how}"), body).await?, json, print::resolved)
}

async fn give_up(
    client: &Client,
    how: &str,
    who: &GiveUpOptions,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let id = match full_id(client, &who.id).await? {
        Ok(id) => id,
        Err((status, problem)) => return Ok(refused(status, &problem)),
    };
    let said = GivingUp { fence: who.fence, by: by(who.by.as_ref())?, why: who.why.clone() };
    let body = serde_json::to_vec(&said).context("the request cannot be written as JSON")?;
    told(client.post(&format!("/keys/{id}/{how}"), body).await?, json, print::given_up)
}

/// The parts of a query that are wanted.
pub(crate) fn query(parts: &[(&str, &Option<String>)]) -> String {
    let wanted = parts.iter().filter_map(|(name, value)| {
        let value = utf8_percent_encode(value.as_ref()?, LITERAL);
        Some(format!("{name}={value}"))
    });
    wanted.collect::<Vec<_>>().join("&")
}

/// Prints an answer, for people or as it came.
pub(crate) fn told<T: DeserializeOwned>(
    answered: Answered,
    json: bool,
    print: impl FnOnce(&T),
) -> anyhow::Result<ExitCode> {
    match answered {
        Answered::Refused(status, problem) => Ok(refused(status, &problem)),
        Answered::Done(body) => {
            let parsed: T = parsed(&body)?;
            if json {
                print::raw(&body);
            } else {
                print(&parsed);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Who resolves: whom the options name, or who is logged in.
pub(crate) fn by(named: Option<&String>) -> anyhow::Result<String> {
    let login = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let by = named.cloned().or_else(login).filter(|by| !by.trim().is_empty());
    by.context("it is not known who you are: say it with --by NAME")
}

/// All digits of a record's name. Only whole names are resolved, so a cut one is looked up.
pub(crate) async fn full_id(
    client: &Client,
    id: &str,
) -> anyhow::Result<Result<String, (StatusCode, ProblemBody)>> {
    if justonce::RecordId::parse(id).is_some() {
        return Ok(Ok(id.to_owned()));
    }
    match client.get(&format!("/keys/{}", utf8_percent_encode(id, LITERAL))).await? {
        Answered::Refused(status, problem) => Ok(Err((status, problem))),
        Answered::Done(body) => Ok(Ok(parsed::<KeyDetail>(&body)?.row.id)),
    }
}

/// Says why not.
pub(crate) fn refused(status: StatusCode, problem: &ProblemBody) -> ExitCode {
    eprintln!("justonce: {}: {}", problem.code, problem.detail);
    match status {
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => ExitCode::from(REFUSED),
        StatusCode::BAD_REQUEST => ExitCode::from(MISUSED),
        _ => ExitCode::FAILURE,
    }
}
