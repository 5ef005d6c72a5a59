//! `cargo xtask ci`: everything CI runs, in the same order on any machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::cmd::{Cmd, workspace_root};
use crate::markdown::{self, Kind};
use crate::tidy;

/// The line by which the README tells people to run the tests.
const TEST_COMMAND: &str = "cargo xtask test";

/// One thing CI does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Command(&'static str, Cmd),
    Tidy,
    ReadmeTest,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Command(name, _) => name,
            Self::Tidy => "tidy",
            Self::ReadmeTest => "test, as the README says",
        }
    }

    fn run(&self, target_dir: Option<&str>) -> Result<()> {
        match self {
            Self::Command(_, cmd) => with_target_dir(cmd.clone(), target_dir).run(),
            Self::Tidy => tidy::run(&tidy::Options::default()),
            Self::ReadmeTest => {
                let path = workspace_root().join("README.md");
                let readme = std::fs::read_to_string(path).context("cannot read README.md")?;
                with_target_dir(readme_test(&readme)?, target_dir).run()
            }
        }
    }
}

/// How a step ended.
#[derive(Debug)]
struct Ended {
    name: &'static str,
    error: Option<String>,
    took: Duration,
}

/// Runs all steps. A failing step does not hide the ones after it, so one run tells everything.
pub(crate) fn run() -> Result<()> {
    let target_dir = made_target_dir();
    let mut ended = Vec::new();
    for step in steps() {
        let name = step.name();
        println!("\n=== {name} ===");
        let (result, took) = timed(|| step.run(target_dir.as_deref()));
        let error = result.err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        println!("=== {name}: {} in {:.1} s", verdict(error.is_none()), took.as_secs_f64());
        ended.push(Ended { name, error, took });
    }
    conclude(&ended)
}

fn steps() -> Vec<Step> {
    let clippy = "clippy --workspace --all-targets --all-features --locked -- -D warnings";
    let doc = "doc --workspace --no-deps --all-features --locked";
    let cargo = |line: &str| Cmd::new("cargo", &line.split(' ').collect::<Vec<_>>());
    vec![
        Step::Command("fmt", cargo("fmt --all --check")),
        Step::Command("clippy", cargo(clippy)),
        Step::Tidy,
        Step::Command("fuzz", cargo("xtask fuzz --seconds 5")),
        Step::Command("simulate", cargo("xtask simulate --seconds 60")),
        Step::Command("toolchain", cargo("xtask release-check toolchain")),
        Step::Command("features", cargo("xtask release-check features")),
        Step::Command("packages", cargo("xtask release-check package")),
        Step::Command("docs", cargo(doc).env("RUSTDOCFLAGS", "-D warnings")),
        Step::ReadmeTest,
    ]
}

/// The README's own test command: what people are told to type is what CI proves.
fn readme_test(readme: &str) -> Result<Cmd> {
    let lines = markdown::lines(readme);
    let line = lines
        .iter()
        .filter(|line| line.kind == Kind::Code)
        .map(|line| line.text.trim())
        .find(|text| *text == TEST_COMMAND);
    match line.and_then(Cmd::parse) {
        Some(cmd) => Ok(cmd),
        None => bail!("README.md has no fenced code block with the line `{TEST_COMMAND}`"),
    }
}

fn with_target_dir(cmd: Cmd, target_dir: Option<&str>) -> Cmd {
    match target_dir {
        Some(dir) => cmd.env("CARGO_TARGET_DIR", dir),
        None => cmd,
    }
}

/// The kept target directory, if it is wanted and can be had; it saves time but is never needed.
fn made_target_dir() -> Option<String> {
    let dir = kept_target_dir(|name| std::env::var(name).ok())?;
    std::fs::create_dir_all(&dir).ok()?;
    dir.into_os_string().into_string().ok()
}

/// Where CI keeps its build between fresh checkouts. People's own machines keep the default.
fn kept_target_dir(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    if !is_set("CI") || is_set("CARGO_TARGET_DIR") {
        return None;
    }
    Some(cache::directory(variable)?.join("target"))
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no behaviour depends on it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

fn conclude(ended: &[Ended]) -> Result<()> {
    println!("\n=== summary ===");
    for Ended { name, error, took } in ended {
        println!("{:<6} {:>7.1} s  {name}", verdict(error.is_none()), took.as_secs_f64());
    }
    let failed: Vec<_> = ended.iter().filter(|e| e.error.is_some()).map(|e| e.name).collect();
    // Once more: who reads only the end of a log sees every reason.
    for Ended { name, error, .. } in ended {
        if let Some(error) = error {
            println!("{name}: {error}");
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} steps failed: {}", failed.len(), ended.len(), failed.join("; "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_in_order() {
        let names: Vec<_> = steps().iter().map(Step::name).collect();
        let expected = [
            "fmt",
            "clippy",
            "tidy",
            "fuzz",
            "simulate",
            "toolchain",
            "features",
            "packages",
            "docs",
            "test, as the README says",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_readme_command_is_found_in_a_code_block() {
        let cmd = readme_test("# Hi\n\n```sh\ncargo build\ncargo xtask test\n```\n").unwrap();
        assert_eq!(cmd, Cmd::new("cargo", &["xtask", "test"]));
    }

    #[test]
    fn prose_and_longer_commands_are_not_the_readme_command() {
        for readme in ["cargo xtask test", "```\ncargo xtask test --kills 3\n```", ""] {
            let error = readme_test(readme).unwrap_err().to_string();
            assert!(error.contains("no fenced code block"), "{error}");
        }
    }

    fn kept(variables: &[(&str, &str)]) -> Option<PathBuf> {
        kept_target_dir(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn only_ci_keeps_its_target_directory() {
        let dir = Some(PathBuf::from("/c/justonce/target"));
        assert_eq!(kept(&[("CI", "1"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), dir);
        let dir = Some(PathBuf::from("/h/.cache/justonce/target"));
        assert_eq!(kept(&[("CI", "1"), ("HOME", "/h")]), dir);
        assert_eq!(kept(&[("HOME", "/h")]), None);
        assert_eq!(kept(&[("CI", "1"), ("HOME", "/h"), ("CARGO_TARGET_DIR", "/t")]), None);
        assert_eq!(kept(&[("CI", "1")]), None);
    }

    #[test]
    fn one_failure_fails_the_run() {
        let step = |name, error: Option<&str>| Ended {
            name,
            error: error.map(str::to_owned),
            took: Duration::ZERO,
        };
        assert!(conclude(&[step("a", None), step("b", None)]).is_ok());
        let error = conclude(&[step("a", None), step("b", Some("why"))]).unwrap_err();
        assert_eq!(error.to_string(), "1 of 2 steps failed: b");
    }
}
