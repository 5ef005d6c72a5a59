//! `--mutants`: breaks a copy of the sources in one way after the other, and lets the simulation
//! find each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::command::{build, simulation};
use super::mutants::{MUTANTS, Mutant};
use crate::cache;
use crate::cmd::{Cmd, workspace_root};

/// How a mutant was found.
#[derive(Debug, PartialEq, Eq)]
struct Caught {
    rule: String,
    seed: String,
    runs: String,
}

/// Shows that each mutant is found within the time.
pub(super) fn mutants(names: &[String], seconds: u64) -> Result<()> {
    let directory = cache::target_dir(|name| std::env::var(name).ok()).join("mutants");
    let (sources, target) = (directory.join("sources"), directory.join("target"));
    copy_sources(&sources)?;
    let mut rows = Vec::new();
    for mutant in chosen(names)? {
        println!("\n=== {}: {}", mutant.name, mutant.what);
        let caught = try_mutant(&mutant, &sources, &target, seconds)?;
        rows.push((mutant, caught));
    }
    conclude(&rows)
}

fn chosen(names: &[String]) -> Result<Vec<Mutant>> {
    if names.is_empty() {
        return Ok(MUTANTS.to_vec());
    }
    let find = |name: &String| MUTANTS.into_iter().find(|mutant| mutant.name.starts_with(name));
    names.iter().map(|name| find(name).with_context(|| format!("no mutant `{name}`"))).collect()
}

/// Copies what git knows or would add, and leaves what is the same: its time would build it anew.
fn copy_sources(to: &Path) -> Result<()> {
    let listed = Cmd::new("git", &["ls-files", "--cached", "--others", "--exclude-standard"]);
    let from = workspace_root();
    for name in listed.stdout()?.lines() {
        let (source, target) = (from.join(name), to.join(name));
        // Deleted, and not committed yet.
        let Ok(bytes) = fs::read(&source) else { continue };
        write_if_other(&target, &bytes)?;
    }
    Ok(())
}

fn write_if_other(target: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(target).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let cannot = || format!("cannot write {}", target.display());
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).with_context(cannot)?;
    }
    fs::write(target, bytes).with_context(cannot)
}

/// Nothing if it was not found.
fn try_mutant(
    mutant: &Mutant,
    sources: &Path,
    target: &Path,
    seconds: u64,
) -> Result<Option<Caught>> {
    let file = sources.join(mutant.file);
    let cannot = || format!("cannot read {}", mutant.file);
    let original = fs::read_to_string(workspace_root().join(mutant.file)).with_context(cannot)?;
    write_if_other(&file, mutant.of(&original)?.as_bytes())?;
    let result = search(sources, target, seconds);
    write_if_other(&file, original.as_bytes())?;
    result
}

fn search(sources: &Path, target: &Path, seconds: u64) -> Result<Option<Caught>> {
    let manifest: PathBuf = sources.join("Cargo.toml");
    build()
        .args(&["--manifest-path", &manifest.to_string_lossy()])
        .args(&["--target-dir", &target.to_string_lossy()])
        .run()?;
    let (passed, output) =
        simulation(target, &["--seconds".into(), seconds.to_string()]).output()?;
    if passed { Ok(None) } else { parse(&output).map(Some) }
}

/// What the simulation says of a broken promise.
fn parse(output: &str) -> Result<Caught> {
    let after =
        |start: &str| output.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
    let first = output.lines().next();
    match (after("broken promise: "), after("seed: "), first) {
        (Some(rule), Some(seed), Some(runs)) => Ok(Caught { rule, seed, runs: runs.to_owned() }),
        _ => bail!("the simulation failed without a broken promise:\n{output}"),
    }
}

fn conclude(rows: &[(Mutant, Option<Caught>)]) -> Result<()> {
    println!("\n{:<36} {:<38} {:<28} after", "mutant", "caught by", "seed");
    for (mutant, caught) in rows {
        match caught {
            Some(Caught { rule, seed, runs }) => {
                println!("{:<36} {rule:<38} {seed:<28} {runs}", mutant.name);
            }
            None => println!("{:<36} NOT CAUGHT", mutant.name),
        }
    }
    let missed: Vec<_> =
        rows.iter().filter(|(_, caught)| caught.is_none()).map(|(m, _)| m.name).collect();
    if !missed.is_empty() {
        bail!("{} of {} mutants were not caught: {}", missed.len(), rows.len(), missed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_read() {
        let output = "12 runs in memory\nbroken promise: one outcome\nwhy\nseed: memory 7\n";
        let caught = parse(output).unwrap();
        assert_eq!(caught.rule, "one outcome");
        assert_eq!(caught.seed, "memory 7");
        assert_eq!(caught.runs, "12 runs in memory");
        assert!(parse("thread 'main' panicked").is_err());
    }

    #[test]
    fn a_mutant_that_was_missed_fails_the_command() {
        let found = || Caught { rule: "r".into(), seed: "s".into(), runs: "n".into() };
        assert!(conclude(&[(MUTANTS[0], Some(found()))]).is_ok());
        let error = conclude(&[(MUTANTS[0], Some(found())), (MUTANTS[1], None)]).unwrap_err();
        assert!(error.to_string().contains("1 of 2 mutants"), "{error}");
    }

    #[test]
    fn mutants_are_chosen_by_the_beginning_of_their_names() {
        assert_eq!(chosen(&["a4".to_owned()]).unwrap()[0].name, "a4-result-taken-back");
        assert_eq!(chosen(&[]).unwrap().len(), MUTANTS.len());
        assert!(chosen(&["zzz".to_owned()]).is_err());
    }
}
