//! The files that are changed, and whether each of them has a mutant.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::mutant::Mutant;
use super::store::Store;

/// Functions that no statement calls any more though none with a higher number has replaced them:
/// their names have changed.
const REPLACED: [&str; 1] = ["begin_from_1"];

/// The texts of all files of a store, by their paths from the directory of its crate.
pub(super) fn read(root: &Path, store: Store) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for directory in store.sources() {
        let path = root.join(store.directory()).join(directory);
        let entries = path.read_dir().with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                texts.insert(format!("{directory}/{}", name.to_string_lossy()), text);
            }
        }
    }
    Ok(texts)
}

/// Checks that every file has a mutant, and every function of a migration that is still called; and
/// that each mutant changes a file that is there.
pub(super) fn check(texts: &BTreeMap<String, String>, mutants: &[Mutant]) -> Result<()> {
    let mut wrong = Vec::new();
    for mutant in mutants {
        match texts.get(mutant.file()) {
            Some(text) => wrong.extend(mutant.apply(text).err().map(|error| error.to_string())),
            None => wrong.push(format!("{mutant}: no such file")),
        }
    }
    let of_migration = |file: &str| file.starts_with("migrations/");
    let makes = |text: &str| text.contains("\nCREATE TABLE") || text.contains("\nCREATE INDEX");
    let files = texts.iter().filter(|(file, text)| !of_migration(file) || makes(text));
    let functions = current_functions(texts).into_iter();
    let places = functions.map(|(name, file)| format!("{file}#{name}"));
    for place in files.map(|(file, _)| file.clone()).chain(places) {
        if !mutants.iter().any(|mutant| mutant.place == place) {
            wrong.push(format!("{place} has no mutant: add one to a table in xtask/src/mutants"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The functions that are called today, each with the last migration that defines it: functions
/// carry a number, and the highest is current.
fn current_functions(texts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut current: BTreeMap<String, (u32, String)> = BTreeMap::new();
    // In the order of their numbers.
    for (file, text) in texts.iter().filter(|(file, _)| file.starts_with("migrations/")) {
        for line in text.lines().filter(|line| line.starts_with("CREATE")) {
            let name = line.split_once("FUNCTION @schema@.").and_then(|(_, rest)| {
                let (name, _) = rest.split_once('(')?;
                (!REPLACED.contains(&name)).then_some(name)
            });
            let Some((stem, number)) = name.and_then(|name| name.rsplit_once('_')) else {
                continue;
            };
            let number = number.parse().unwrap_or_default();
            let newest = current.entry(stem.to_owned()).or_default();
            if number >= newest.0 {
                *newest = (number, file.clone());
            }
        }
    }
    let named = |(stem, (number, file))| (format!("{stem}_{number}"), file);
    current.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::mutant::mutant;

    fn texts(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_file_without_a_mutant_is_an_error() {
        let texts = texts(&[("lua/a.lua", "return 1\n"), ("lua/b.lua", "return 1\n")]);
        let of_a = mutant("lua/a.lua", "1", "2");
        let error = check(&texts, &[of_a]).unwrap_err().to_string();
        assert!(error.contains("lua/b.lua has no mutant"), "{error}");
        check(&texts, &[of_a, mutant("lua/b.lua", "1", "2")]).unwrap();
        let error = check(&texts, &[mutant("lua/c.lua", "1", "2")]).unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn the_highest_number_and_the_last_file_are_current() {
        let texts = texts(&[
            (
                "migrations/1.sql",
                "CREATE FUNCTION @schema@.a_1()\nCREATE FUNCTION @schema@.b_1()\n",
            ),
            ("migrations/2.sql", "CREATE OR REPLACE FUNCTION @schema@.a_1()\n"),
            ("migrations/3.sql", "CREATE FUNCTION @schema@.b_2()\n"),
        ]);
        let current = current_functions(&texts);
        let expected = [("a_1", "migrations/2.sql"), ("b_2", "migrations/3.sql")];
        assert_eq!(current, expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    }
}
