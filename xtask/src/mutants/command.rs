//! The command itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::files;
use super::mutant::Mutant;
use super::program::{Places, Program, build};
use super::report::{Tried, table, verdict};
use super::store::Store;
use super::suite::Suite;
use crate::cache;
use crate::cmd::workspace_root;
use crate::services;

/// Which mutants to try.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only mutants whose place or change contains one of these
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Run only tests that compare the store with the rules, or are about the place of the mutant,
    /// and usually take less than so many seconds: what survives must be tried again without this
    #[arg(long, value_name = "SECONDS")]
    quick: Option<u64>,
    /// How many tests run at once; the number of cores without it
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// The stores; both without any
    #[arg(value_name = "STORE")]
    stores: Vec<Store>,
}

impl Options {
    fn selects(&self, mutant: &Mutant) -> bool {
        let name = mutant.to_string();
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }
}

/// Tries all mutants; an error if one survives that has no reason to.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stores = if options.stores.is_empty() { &Store::ALL[..] } else { &options.stores };
    let names: Vec<&str> = stores.iter().map(|store| store.name()).collect();
    services::run_for_tests(&names)?;
    let mut verdicts = Vec::new();
    for store in stores {
        verdicts.push(try_all(*store, options)?);
    }
    verdicts.into_iter().collect()
}

/// The outer error is one of the run itself, the inner one its verdict.
fn try_all(store: Store, options: &Options) -> Result<Result<()>> {
    let root = workspace_root();
    let texts = files::read(&root, store)?;
    let mutants = store.mutants();
    files::check(&texts, &mutants)?;
    let chosen: Vec<Mutant> = mutants.iter().filter(|one| options.selects(one)).copied().collect();
    if chosen.is_empty() {
        return Ok(Ok(()));
    }
    let directory = directory(store);
    std::fs::create_dir_all(directory.join("log"))
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let programs: Vec<Program> = build(&store.package())?
        .iter()
        .map(|program| Program::copy(program, &directory.join("programs")))
        .collect::<Result<_>>()?;
    let jobs = options.jobs.unwrap_or_else(cores);
    let crate_dir = root.join(store.directory());
    let mut suite =
        Suite::new(&programs, store.tests_of_text(), crate_dir, directory.clone(), jobs)?;
    if options.only.is_empty() || !suite.is_measured() {
        suite.measure()?;
    }
    let mut tried = Vec::new();
    for (number, mutant) in chosen.iter().enumerate() {
        let text = texts.get(mutant.file()).map_or("", String::as_str);
        let one = try_one(mutant, text, &programs, &suite, options.quick)?;
        println!(
            "{:3}/{} {:6.1} s  {mutant}\n{:16}{}",
            number + 1,
            chosen.len(),
            one.took.as_secs_f64(),
            "",
            one.ended()
        );
        tried.push(one);
    }
    let table = table(&tried);
    println!("\n{table}");
    let report = directory.join("report.md");
    std::fs::write(&report, table).with_context(|| format!("cannot write {}", report.display()))?;
    Ok(verdict(&tried, options.only.is_empty()))
}

#[expect(clippy::disallowed_methods, reason = "how long a mutant takes is for whoever waits")]
fn try_one(
    mutant: &Mutant,
    text: &str,
    programs: &[Program],
    suite: &Suite,
    quick: Option<u64>,
) -> Result<Tried> {
    let since = Instant::now();
    let (changed, line) = (mutant.apply(text)?, mutant.line(text)?);
    let places = Places::find(programs, text).with_context(|| mutant.file())?;
    places.write(&changed)?;
    let noticed = suite.notices(mutant, quick.map(Duration::from_secs));
    places.write(text)?;
    Ok(Tried { mutant: *mutant, line, noticed: noticed?, took: since.elapsed() })
}

/// Where the copies lie.
fn directory(store: Store) -> PathBuf {
    cache::target_dir(|name| std::env::var(name).ok()).join("mutants").join(store.name())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
