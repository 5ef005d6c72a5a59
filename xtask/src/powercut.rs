//! `cargo xtask powercut`: cuts the power of the embedded store at many points, and checks what is
//! left; or leaves out what must not be missing, and checks that this is noticed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cache;
use crate::cmd::{Cmd, workspace_root};
use crate::services;

const PACKAGE: &str = "justonce-powercut";
/// What the check exits with if something was lost. With any other code it has not worked.
const LOST: i32 = 3;

/// How much to check.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many states are made
    #[arg(long, value_name = "N", default_value_t = 200)]
    states: usize,
    /// Decides what is done and what is lost
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Leave out syncs, and change the sources: each must be noticed in so many states
    #[arg(long)]
    mutants: bool,
}

/// A change of the sources that must be noticed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    /// What it does, for people.
    name: &'static str,
    /// The file, from the root of the workspace.
    file: &'static str,
    /// What stands there, once.
    from: &'static str,
    /// What stands there instead.
    to: &'static str,
}

const CHANGED: &[Changed] = &[
    Changed {
        name: "the log is not synced",
        file: "crates/justonce-embedded/src/wal/segments.rs",
        from: ".and_then(|()| segment.file.sync_data())",
        to: "",
    },
    Changed {
        name: "files of the log are written again before the engine has what they hold",
        file: "crates/justonce-embedded/src/applier.rs",
        from: "        self.applied.write(&state.disk, &mut batches, || all_unsettled(state))?;
        if let Some(last) = batches.last() {
            self.apply_queue.is_durable(last.number);
        }
",
        to: "        if let Some(last) = batches.last() {
            self.apply_queue.is_durable(last.number);
        }
        self.applied.write(&state.disk, &mut batches, || all_unsettled(state))?;
",
    },
    Changed {
        name: "no directory is synced",
        file: "crates/justonce-embedded/src/files.rs",
        from: "File::open(path)?.sync_all()",
        to: "File::open(path).map(drop)",
    },
    Changed {
        name: "the engine's batches are not synced",
        file: "crates/justonce-embedded/src/disk.rs",
        from: "let With { swept, expiring, rows } = with;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));",
        to: "let With { swept, expiring, rows } = with;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));",
    },
    Changed {
        name: "the names of blob files are not synced",
        file: "crates/justonce-embedded/src/blob_names.rs",
        from: "match sync_directory(&keyspace?.path().join(BLOBS)) {",
        to: "match keyspace.map(drop) {",
    },
    Changed {
        name: "the directory above the store's is not synced",
        file: "crates/justonce-embedded/src/files.rs",
        from: "    match sync_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),",
        to: "    match path.try_exists().map(drop) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),",
    },
    Changed {
        name: "the directories above a restored store are not synced",
        file: "crates/justonce-embedded/src/backup/restore.rs",
        from: "create_durable_folder(to).map_err(io)?;",
        to: "create_folder(to).map_err(io)?;",
    },
    Changed {
        name: "the folders of a new database are not synced",
        file: "crates/justonce-embedded/src/disk.rs",
        from: "        sync_directories(made)?;\n",
        to: "        let _ = sync_directories;\n",
    },
];

/// Installs what is missing, builds the check and runs it.
pub(crate) fn run(options: &Options) -> Result<()> {
    services::run_for_tests(&["powercut"])?;
    if options.mutants { mutants(options) } else { check(options, &workspace_root()).run() }
}

/// The check, on sources.
fn check(options: &Options, sources: &Path) -> Cmd {
    let manifest = sources.join("Cargo.toml");
    Cmd::new("cargo", &["run", "--locked", "--package", PACKAGE])
        .args(&["--manifest-path", &manifest.to_string_lossy(), "--", "check"])
        .args(&["--states", &options.states.to_string(), "--seed", &options.seed.to_string()])
}

/// Leaves out one thing after the other.
fn mutants(options: &Options) -> Result<()> {
    let mut unnoticed = Vec::new();
    let dropped = check(options, &workspace_root()).args(&["--dropped"]).status()?;
    if !dropped.success() {
        unnoticed.push("some syncs that were left out of the recording");
    }
    let directory = cache::target_dir(|name| std::env::var(name).ok()).join("powercut");
    let sources = directory.join("sources");
    copy_sources(&sources)?;
    let target = directory.join("target");
    let mut told = Vec::new();
    for changed in CHANGED {
        let file = sources.join(changed.file);
        let before = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        std::fs::write(&file, changed.apply(&before)?)?;
        let run = check(options, &sources).args(&["--until-failure"]);
        let run = run.env("CARGO_TARGET_DIR", &target.to_string_lossy());
        let status = run.status()?;
        std::fs::write(&file, before)?;
        let is_noticed = status.code() == Some(LOST);
        if !is_noticed && !status.success() {
            bail!("`{run}` failed ({status}) with this change: {}", changed.name);
        }
        told.push((if is_noticed { "noticed" } else { "NOT NOTICED" }, changed.name));
        if !is_noticed {
            unnoticed.push(changed.name);
        }
    }
    println!("\n=== changed sources ===");
    told.iter().for_each(|(noticed, name)| println!("{noticed:<12} {name}"));
    if !unnoticed.is_empty() {
        bail!("not noticed: {}", unnoticed.join("; "));
    }
    Ok(())
}

impl Changed {
    /// The changed text.
    fn apply(&self, text: &str) -> Result<String> {
        if text.matches(self.from).count() != 1 {
            bail!("`{}` does not stand once in {}", self.from, self.file);
        }
        Ok(text.replacen(self.from, self.to, 1))
    }
}

/// Copies everything that git knows or would add. What is the same there keeps its time, so that
/// it is not built again.
fn copy_sources(to: &Path) -> Result<()> {
    let listed = Cmd::new("git", &["ls-files", "--cached", "--others", "--exclude-standard"]);
    for name in listed.stdout()?.lines() {
        let (from, to) = (workspace_root().join(name), to.join(name));
        // One that was removed is still listed.
        let Ok(bytes) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().map(PathBuf::from).unwrap_or_default();
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_fits_the_sources() {
        for changed in CHANGED {
            let text = std::fs::read_to_string(workspace_root().join(changed.file)).unwrap();
            let after = changed.apply(&text).unwrap();
            assert_ne!(text, after, "{}", changed.name);
        }
    }

    #[test]
    fn the_check_is_run_on_the_sources_that_are_named() {
        let options = Options { states: 5000, seed: 3, mutants: false };
        let expected = "cargo run --locked --package justonce-powercut --manifest-path \
                        /w/Cargo.toml -- check --states 5000 --seed 3";
        assert_eq!(check(&options, Path::new("/w")).to_string(), expected);
    }
}
