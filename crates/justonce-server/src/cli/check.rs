//! `justonce check`: whether a configuration is right, what it means, and whether what it names can
//! be used.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use justonce::postgres::{PostgresStore, migrate};
use justonce::store::OutcomeCache;
use justonce::{Fingerprint, Key, RecordId, Scope};
use justonce_net::{SocketAddress, read_certificates};
use justonce_proxy::ServerTls;

use super::print::say;
use crate::config::{
    self, AccessLogTarget, AdminToken, Flags, PostgresSettings, ServerUrl, Settings, StoreSettings,
    StoreUrl,
};
use crate::identity;
use crate::stores::{self, with_causes};
use crate::upstreams;

/// How long a store may take to answer, beyond its own timeout.
const MARGIN: Duration = Duration::from_secs(5);

/// What to check.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckOptions {
    #[command(flatten)]
    flags: Flags,

    /// Ask the store too whether it is there and can be used; nothing is changed in it
    #[arg(long)]
    connect: bool,

    /// Print a JSON Schema of the configuration file, for editors, and check nothing
    #[arg(long, conflicts_with = "connect")]
    schema: bool,
}

/// Explains a configuration, says what is risky, and fails if something in it cannot be used.
///
/// # Errors
///
/// If the configuration itself is wrong.
pub(super) fn run(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    if options.schema {
        say(&format!("{:#}", config::json_schema()));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = config::load(&options.flags, &config::variables_of_the_process())?;
    say(&config::explain(&settings));
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        say(&format!("\nThese variables are service links of Kubernetes and ignored: {names}."));
    }
    for warning in config::warnings(&settings) {
        say(&format!("\nwarning: {warning}"));
    }
    let mut problems = problems(&settings);
    if options.connect {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(answers(&settings)) {
            Ok(what) => say(&format!("\n{what}")),
            Err(problem) if !problems.contains(&problem) => problems.push(problem),
            Err(_) => {}
        }
    }
    for problem in &problems {
        eprintln!("\nproblem: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the gateway could not use, or what cannot be meant.
fn problems(settings: &Settings) -> Vec<String> {
    let mut found: Vec<String> =
        config::never_reached(settings).iter().map(ToString::to_string).collect();
    found.extend(files(settings));
    found.extend(addresses(settings));
    found
}

fn files(settings: &Settings) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(tls) = &settings.tls
        && let Err(error) = ServerTls::from_files(&identity::tls_files(tls))
    {
        found.push(format!("`tls`: {error}"));
    }
    let tokens = [
        ("admin_token_file", &settings.admin_token),
        ("callback_token_file", &settings.callback_token),
    ];
    for (name, token) in tokens {
        if let Some(token @ AdminToken::File(path)) = token
            && let Err(error) = token.read()
        {
            found.push(unreadable(name, path, &error));
        }
    }
    found.extend(upstreams::problems(settings));
    found.extend(identity::problems(settings));
    let authorities =
        [("upstream_tls.ca", &settings.upstream_ca), ("redis.ca", &settings.stores.redis.ca)];
    for (name, path) in authorities {
        if let Some(path) = path
            && let Err(why) = read_certificates(path)
        {
            found.push(unreadable(name, path, &why));
        }
    }
    if let Some(AccessLogTarget::File(path)) = &settings.access_log.to {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() {
            found.push(format!("`access_log.to`: {} is a directory", path.display()));
        } else if directory.is_some_and(|directory| !directory.is_dir()) {
            found.push(format!("`access_log.to`: there is no directory for {}", path.display()));
        }
    }
    if let SocketAddress::Unix(path) = &settings.listen
        && path.parent().is_some_and(|directory| !directory.is_dir())
    {
        found.push(format!("`listen`: there is no directory for {}", path.display()));
    }
    if let StoreUrl::File(path) = &settings.store
        && path.exists()
        && !path.is_dir()
    {
        found.push(format!("`store`: {} is not a directory", path.display()));
    }
    found
}

fn unreadable(name: &str, path: &Path, why: &dyn Display) -> String {
    format!("`{name}`: {} cannot be used: {why}", path.display())
}

/// What is wrong with the addresses of stores, without connecting.
fn addresses(settings: &Settings) -> Vec<String> {
    let stores = &settings.stores;
    let of_redis =
        |url: &ServerUrl| stores::outcomes(url, stores).err().map(|error| unusable(url, &error));
    let of_postgres = |url: &ServerUrl| {
        let builder = PostgresStore::builder(url.reveal()).schema(&stores.postgres.schema);
        builder.check().err().map(|error| unusable(url, &error))
    };
    match &settings.store {
        StoreUrl::Memory | StoreUrl::File(_) => Vec::new(),
        StoreUrl::Redis(url) => of_redis(url).into_iter().collect(),
        StoreUrl::Postgres(url) => of_postgres(url).into_iter().collect(),
        StoreUrl::Tiered { redis, postgres } => {
            of_redis(redis).into_iter().chain(of_postgres(postgres)).collect()
        }
    }
}

fn unusable(url: &ServerUrl, error: &dyn std::error::Error) -> String {
    format!("`store`: {url} cannot be used: {}", with_causes(error))
}

/// Connects to the store, and changes nothing in it.
async fn answers(settings: &Settings) -> Result<String, String> {
    let stores = &settings.stores;
    match &settings.store {
        StoreUrl::Memory => {
            Ok("The store is in this process: there is nothing to connect to.".to_owned())
        }
        StoreUrl::File(path) => Ok(format!(
            "The store in {} was not opened: a gateway may be using it.",
            path.display()
        )),
        StoreUrl::Redis(url) => {
            let opened = in_time(url, stores, stores::redis(url, stores)).await?;
            opened.map_err(|error| format!("`store`: {error:#}"))?;
            Ok(format!("The store in {url} answers."))
        }
        StoreUrl::Postgres(url) => tables(url, stores).await,
        StoreUrl::Tiered { redis, postgres } => {
            let found = tables(postgres, stores).await?;
            let cache = stores::outcomes(redis, stores).map_err(|error| unusable(redis, &error))?;
            let id = RecordId::of(&Scope::global(), &Key::content("check", b""));
            let read = in_time(redis, stores, cache.get(&id, &Fingerprint::UNCHECKED)).await?;
            read.map_err(|error| unusable(redis, &error))?;
            Ok(format!("{found} The cache in {redis} answers."))
        }
    }
}

/// Checks which of the tables PostgreSQL has.
async fn tables(url: &ServerUrl, settings: &StoreSettings) -> Result<String, String> {
    let PostgresSettings { schema, migrate, .. } = &settings.postgres;
    let pending = in_time(url, settings, migrate::pending(url.reveal(), schema)).await?;
    let pending = pending.map_err(|error| unusable(url, &error))?;
    match (pending.len(), migrate) {
        (0, _) => Ok(format!("The store in {url} answers.")),
        (_, true) => {
            Ok(format!("The store in {url} answers; its tables are made or changed at the start."))
        }
        (missing, false) => Err(format!(
            "`store`: {url} lacks {missing} steps of the schema {schema:?}, and \
             `postgres.migrate` is off: run `justonce migrate`"
        )),
    }
}

async fn in_time<T>(
    url: &ServerUrl,
    settings: &StoreSettings,
    answer: impl Future<Output = T>,
) -> Result<T, String> {
    let limit = settings.timeout + MARGIN;
    let answered = tokio::time::timeout(limit, answer).await;
    answered.map_err(|_| format!("`store`: {url} did not answer within {} s", limit.as_secs()))
}
