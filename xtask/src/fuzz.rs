//! `cargo xtask fuzz`: builds the fuzz targets with coverage and runs each for a while.
//!
//! The compiler's own pass counts the coverage, so neither a nightly compiler nor another tool is
//! needed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::cache;
use crate::cmd::Cmd;

/// The targets, and where their first inputs are beside their corpus.
const TARGETS: [(&str, &[&str]); 5] = [
    ("key", &[]),
    ("pointer", &[]),
    ("path", &[]),
    ("caller", &[]),
    (
        "config",
        &[
            "crates/justonce-config/tests/config/fixtures/right",
            "crates/justonce-config/tests/config/fixtures/wrong",
        ],
    ),
];

/// What makes the compiler count coverage as libFuzzer wants it.
const FLAGS: [&str; 6] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The longest input, in bytes: longer ones find little that these do not.
const MAX_INPUT_BYTES: u32 = 4096;
/// An input that takes longer than this counts as a hang.
const MAX_INPUT_SECONDS: u32 = 10;
/// More memory than this counts as a leak.
const MAX_MEMORY_MIB: u32 = 1024;

/// How long to look.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u32,
    /// Run only these targets: key, pointer, path, caller, config
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Builds all targets and runs them; the input of a crash is kept.
pub(crate) fn run(options: &Options) -> Result<()> {
    let host = host(&Cmd::new("rustc", &["--version", "--verbose"]).stdout()?)?;
    let directory = directory(|name| std::env::var(name).ok());
    build(&host, &directory).run()?;
    for (name, seeds) in chosen(&options.targets)? {
        let (found, crashes) = (directory.join("corpus").join(name), directory.join("crashes"));
        for made in [&found, &crashes] {
            std::fs::create_dir_all(made)
                .with_context(|| format!("cannot make {}", made.display()))?;
        }
        fuzz(&host, &directory, name, seeds, options.seconds).run().with_context(|| {
            format!("the target `{name}` failed; its input is kept in {}", crashes.display())
        })?;
    }
    Ok(())
}

/// The targets with these names; all of them without any.
fn chosen(names: &[String]) -> Result<Vec<(&'static str, &'static [&'static str])>> {
    if names.is_empty() {
        return Ok(TARGETS.to_vec());
    }
    let find = |name: &String| TARGETS.into_iter().find(|(known, _)| known == name);
    let found = names.iter().map(|name| find(name).with_context(|| format!("no target `{name}`")));
    found.collect()
}

/// A build apart from all others: its flags would throw theirs away.
fn directory(variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    cache::target_dir(variable).join("fuzz")
}

/// The compiler's own platform. It must be named in the build: only then are build scripts and
/// macros built without the flags.
fn host(version: &str) -> Result<String> {
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc does not say which host it is for")
}

fn build(host: &str, directory: &Path) -> Cmd {
    let line = "build --profile fuzz --package justonce-fuzz --bins --locked --target";
    Cmd::new("cargo", &line.split(' ').collect::<Vec<_>>())
        .args(&[host, "--target-dir", &directory.to_string_lossy()])
        .env("RUSTFLAGS", &FLAGS.join(" "))
}

fn fuzz(host: &str, directory: &Path, name: &str, seeds: &[&str], seconds: u32) -> Cmd {
    let program = directory.join(host).join("fuzz").join(name);
    // What is found goes to the first corpus; the others are only read.
    let found = directory.join("corpus").join(name);
    let crashes = directory.join("crashes").join(format!("{name}-"));
    Cmd::new(&program.to_string_lossy(), &[found.to_string_lossy()])
        .args(&[format!("fuzz/corpus/{name}")])
        .args(seeds)
        .args(&[
            format!("-max_total_time={seconds}"),
            format!("-max_len={MAX_INPUT_BYTES}"),
            format!("-timeout={MAX_INPUT_SECONDS}"),
            format!("-rss_limit_mb={MAX_MEMORY_MIB}"),
            format!("-artifact_prefix={}", crashes.display()),
            "-print_final_stats=1".to_owned(),
        ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::workspace_root;

    #[test]
    fn the_host_is_the_compilers() {
        let version = "rustc 1.95.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1\n";
        assert_eq!(host(version).unwrap(), "x86_64-unknown-linux-gnu");
        assert!(host("rustc 1.95.0\n").is_err());
    }

    #[test]
    fn the_build_is_apart() {
        let kept = directory(|name| (name == "CARGO_TARGET_DIR").then(|| "/c".to_owned()));
        assert_eq!(kept, Path::new("/c/fuzz"));
        assert!(directory(|_| None).ends_with("target/fuzz"));
        let build = build("a-host", &kept).to_string();
        assert!(build.contains("-Cpasses=sancov-module"), "{build}");
        assert!(build.ends_with("--target a-host --target-dir /c/fuzz"), "{build}");
    }

    #[test]
    fn what_is_found_goes_to_the_build_and_not_to_the_sources() {
        let fuzz = fuzz("a-host", Path::new("/c/fuzz"), "key", &["more"], 5).to_string();
        let expected = "/c/fuzz/a-host/fuzz/key /c/fuzz/corpus/key fuzz/corpus/key more \
                        -max_total_time=5 ";
        assert!(fuzz.starts_with(expected), "{fuzz}");
        assert!(fuzz.contains("-artifact_prefix=/c/fuzz/crashes/key- "), "{fuzz}");
    }

    #[test]
    fn every_target_is_one_of_the_crate_and_has_seeds() {
        let root = workspace_root();
        for (name, seeds) in TARGETS {
            assert!(root.join(format!("fuzz/targets/{name}.rs")).is_file(), "{name}");
            let corpus = format!("fuzz/corpus/{name}");
            for seeds in seeds.iter().copied().chain([corpus.as_str()]) {
                assert!(root.join(seeds).read_dir().unwrap().next().is_some(), "{seeds}");
            }
        }
    }

    #[test]
    fn a_target_that_is_none_is_refused() {
        assert_eq!(chosen(&["config".to_owned()]).unwrap().len(), 1);
        assert!(chosen(&["no-such".to_owned()]).is_err());
        assert_eq!(chosen(&[]).unwrap().len(), TARGETS.len());
    }
}
