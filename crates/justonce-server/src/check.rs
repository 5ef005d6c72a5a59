//! `justonce check`: is a configuration right, what does it mean, and is all of it there?

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use justonce::postgres::{PostgresStore, migrate};
use justonce::redis::RedisOutcomes;
use justonce::store::OutcomeCache;
use justonce::{Fingerprint, Key, RecordId, Scope};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::config::{
    self, AdminToken, Flags, PostgresSettings, ServerUrl, Settings, StoreSettings, StoreUrl,
};
use crate::listen::ServerTls;
use crate::stores::{self, told};

/// How long a store may take to answer, beside what its own settings allow.
const MARGIN: Duration = Duration::from_secs(5);

/// What to check.
#[derive(Args, Clone, Debug)]
pub struct CheckOptions {
    #[command(flatten)]
    flags: Flags,

    /// Ask the store too whether it is there and can be used; nothing is changed in it
    #[arg(long)]
    connect: bool,
}

/// Explains a configuration, says what is risky, and fails if something in it cannot be used.
///
/// # Errors
///
/// If the configuration itself is wrong.
pub fn run(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    let settings = config::load(&options.flags, &config::variables_of_the_process())?;
    println!("{}", config::explain(&settings));
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        println!("\nThese variables are service links of Kubernetes and ignored: {names}.");
    }
    for warning in config::warnings(&settings) {
        println!("\nwarning: {warning}");
    }
    let mut problems = problems(&settings);
    if options.connect {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(answers(&settings)) {
            Ok(what) => println!("\n{what}"),
            Err(problem) if !problems.contains(&problem) => problems.push(problem),
            Err(_) => {}
        }
    }
    for problem in &problems {
        eprintln!("\nproblem: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the gateway could not use, or what is surely not meant.
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
        && let Err(error) = ServerTls::from_files(&tls.cert, &tls.key)
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
    let authorities =
        [("upstream_tls.ca", &settings.upstream_ca), ("redis.ca", &settings.stores.redis.ca)];
    for (name, path) in authorities {
        if let Some(path) = path
            && let Err(why) = certificates(path)
        {
            found.push(unreadable(name, path, &why));
        }
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

/// Whether a file holds certificates, and nothing that is none.
fn certificates(path: &Path) -> Result<(), String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// What is wrong with the addresses of stores, by what they say.
fn addresses(settings: &Settings) -> Vec<String> {
    let stores = &settings.stores;
    let of_redis = |url: &ServerUrl| outcomes(url, stores).err();
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
    let told = told(error).replace(" (the step was not applied)", "");
    format!("`store`: {url} cannot be used: {told}")
}

fn outcomes(url: &ServerUrl, settings: &StoreSettings) -> Result<RedisOutcomes, String> {
    let mut builder = RedisOutcomes::builder(url.reveal()).prefix(&settings.redis.prefix);
    if let Some(ca) = &settings.redis.ca {
        builder = builder.ca_file(ca);
    }
    builder.build().map_err(|error| unusable(url, &error))
}

/// Asks the store whether it is there, and changes nothing in it.
async fn answers(settings: &Settings) -> Result<String, String> {
    let stores = &settings.stores;
    match &settings.store {
        StoreUrl::Memory => Ok("The store is in this process: there is nobody to ask.".to_owned()),
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
            let told = tables(postgres, stores).await?;
            let cache = outcomes(redis, stores)?;
            let id = RecordId::of(&Scope::global(), &Key::content("check", b""));
            let looked = in_time(redis, stores, cache.get(&id, &Fingerprint::UNCHECKED)).await?;
            looked.map_err(|error| unusable(redis, &error))?;
            Ok(format!("{told} The cache in {redis} answers."))
        }
    }
}

/// Asks PostgreSQL which of our tables it has.
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
