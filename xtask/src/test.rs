//! `cargo xtask test`: the tests of some crates, or all tests, on a machine that may have nothing
//! yet.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::cmd::Cmd;
use crate::services;

/// The variable by which the crash test learns how often to kill its child.
const KILLS_VARIABLE: &str = "JUSTONCE_KILLS";
/// Our packages are called `justonce-NAME`; `NAME` is enough on the command line.
const PREFIX: &str = "justonce-";
/// What cargo-nextest exits with when no test matches.
const NO_TESTS: i32 = 4;

/// Which tests to run, and how hard.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// How often the crash test kills its child; the test's own default is 50
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
    /// Run only the tests of these crates (`core`, `http`, `justonce-redis`, …), or those whose
    /// name contains one of these; no doctests and no examples
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// What cargo knows of the workspace.
#[derive(Debug)]
struct Workspace {
    packages: Vec<String>,
    target: String,
}

/// What the names on the command line select.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// Packages; all of them if none is named.
    packages: Vec<String>,
    /// Parts of the names of tests.
    filters: Vec<String>,
}

/// Installs what is missing, then runs the tests; the first failure ends the run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::read()?;
    let selection = workspace.select(&options.names)?;
    services::run_for_tests(&selection.crates())?;
    let tests = nextest(&selection, options.kills);
    let status = tests.status()?;
    if status.code() == Some(NO_TESTS) && !selection.filters.is_empty() {
        let filters = selection.filters.join("`, `");
        bail!("no test has `{filters}` in its name; the crates are {}", workspace.crates());
    }
    if !status.success() {
        bail!("`{tests}` failed ({status})");
    }
    let others = if options.names.is_empty() { other_tests(&workspace.target) } else { vec![] };
    others.iter().try_for_each(Cmd::run)
}

impl Workspace {
    fn read() -> Result<Self> {
        let metadata = Cmd::new("cargo", &["metadata", "--no-deps", "--format-version", "1"]);
        Self::parse(&metadata.stdout()?)
    }

    fn parse(metadata: &str) -> Result<Self> {
        let metadata: Value = serde_json::from_str(metadata)?;
        let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
        let packages = metadata.get("packages").and_then(Value::as_array);
        let packages = packages.context("cargo metadata has no packages")?;
        Ok(Self {
            packages: packages.iter().filter_map(|package| text(package, "name")).collect(),
            target: text(&metadata, "target_directory").context("there is no target directory")?,
        })
    }

    /// The package that is meant by a name.
    fn package(&self, name: &str) -> Option<&String> {
        self.packages.iter().find(|package| short(package) == short(name))
    }

    fn select(&self, names: &[String]) -> Result<Selection> {
        let mut selection = Selection::default();
        for name in names {
            match self.package(name) {
                Some(package) => selection.packages.push(package.clone()),
                None if name.starts_with(PREFIX) => {
                    bail!("`{name}` is not a crate; the crates are {}", self.crates());
                }
                None => selection.filters.push(name.clone()),
            }
        }
        Ok(selection)
    }

    /// The names of all crates, as they are written on the command line.
    fn crates(&self) -> String {
        let mut names: Vec<&str> = self.packages.iter().map(|package| short(package)).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

impl Selection {
    fn crates(&self) -> Vec<&str> {
        self.packages.iter().map(|package| short(package)).collect()
    }
}

fn short(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

fn nextest(selection: &Selection, kills: Option<u32>) -> Cmd {
    let mut tests = Cmd::new("cargo", &["nextest", "run", "--all-features"]);
    if selection.packages.is_empty() {
        tests = tests.args(&["--workspace"]);
    }
    for package in &selection.packages {
        tests = tests.args(&["--package", package]);
    }
    if let Some(kills) = kills {
        tests = tests.env(KILLS_VARIABLE, &kills.to_string());
    }
    tests.args(&selection.filters)
}

/// What is tested besides. The programs were built with the tests; `cargo run` would build them
/// again, with the features that are left without the tests.
fn other_tests(target: &str) -> Vec<Cmd> {
    let program = |path: &str, args: &[&str]| Cmd::new(&format!("{target}/debug/{path}"), args);
    vec![
        Cmd::new("cargo", &["test", "--doc", "--workspace", "--all-features"]),
        program("examples/payment", &[]),
        program("examples/transfer", &[]),
        program("examples/fenced", &[]),
        program("justonce", &["demo", "--once"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        let packages = ["justonce", "justonce-core", "justonce-redis", "xtask"];
        Workspace { packages: packages.map(str::to_owned).to_vec(), target: "/t".into() }
    }

    fn selected(names: &[&str]) -> Result<Selection> {
        workspace().select(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    fn line(names: &[&str], kills: Option<u32>) -> String {
        nextest(&selected(names).unwrap(), kills).to_string()
    }

    #[test]
    fn without_a_name_everything_runs() {
        assert_eq!(line(&[], None), "cargo nextest run --all-features --workspace");
        let others: Vec<String> = other_tests("/t").iter().map(Cmd::to_string).collect();
        let expected = [
            "cargo test --doc --workspace --all-features",
            "/t/debug/examples/payment",
            "/t/debug/examples/transfer",
            "/t/debug/examples/fenced",
            "/t/debug/justonce demo --once",
        ];
        assert_eq!(others, expected);
    }

    #[test]
    fn a_crate_is_named_in_full_or_without_its_prefix() {
        let expected = "cargo nextest run --all-features --package justonce-core \
                        --package justonce-redis";
        assert_eq!(line(&["core", "justonce-redis"], None), expected);
        assert_eq!(selected(&["justonce", "xtask"]).unwrap().crates(), ["justonce", "xtask"]);
    }

    #[test]
    fn any_other_name_is_part_of_the_name_of_a_test() {
        let everywhere = "JUSTONCE_KILLS=500 cargo nextest run --all-features --workspace crash";
        assert_eq!(line(&["crash"], Some(500)), everywhere);
        let in_one = "cargo nextest run --all-features --package justonce-core lease";
        assert_eq!(line(&["core", "lease"], None), in_one);
    }

    #[test]
    fn a_wrong_crate_is_answered_with_the_right_ones() {
        let error = selected(&["justonce-rediss"]).unwrap_err().to_string();
        assert!(error.contains("`justonce-rediss`"), "{error}");
        assert!(error.ends_with("core, justonce, redis, xtask"), "{error}");
    }

    #[test]
    fn metadata_names_the_packages_and_the_target_directory() {
        let text = r#"{"packages": [{"name": "justonce-core"}], "target_directory": "/t"}"#;
        let workspace = Workspace::parse(text).unwrap();
        assert_eq!((workspace.crates(), workspace.target), ("core".to_owned(), "/t".to_owned()));
        assert!(Workspace::parse("{}").is_err());
    }

    #[test]
    fn crates_with_needs_of_their_own_exist() {
        let workspace = Workspace::read().unwrap();
        for need in crate::needs::NEEDS {
            if let crate::needs::UsedBy::TestsOf(crates) = need.used_by {
                let missing = crates.iter().find(|name| workspace.package(name).is_none());
                assert_eq!(missing, None, "{}", need.name);
            }
        }
    }
}
