//! `cargo xtask services`: finds or installs what tests and benchmarks need from the machine.
//!
//! A new need is a new row in [`NEEDS`]. A need that is missing and cannot be installed fails the
//! run; no test is skipped for it.

use std::env::consts::ARCH;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::cache;
use crate::cmd::{Cmd, workspace_root};
use crate::needs::{
    CPU, FOR_RELEASES, FOR_SAGAS, FOR_VERSIONS, Install, MACHINE, NEEDS, Need, PYTHON, VERSIONS,
};

/// Prefix of every apt command: nobody is there to answer a package's questions.
const APT: [&str; 3] = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];

/// What to do besides.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Then start a private Redis, a group with sentinels, a cluster and a PostgreSQL, say where
    /// they are, and keep them until Ctrl-C
    #[arg(long)]
    start: bool,
}

/// The command itself.
pub(crate) fn run_command(options: &Options) -> Result<()> {
    run()?;
    if options.start {
        start().run()?;
    }
    Ok(())
}

/// The program that starts one server of each kind.
fn start() -> Cmd {
    let program = ["--package", "justonce-testbed", "--example", "servers"];
    Cmd::new("cargo", &["run", "--quiet"]).args(&program)
}

/// Finds or installs every need of [`NEEDS`].
pub(crate) fn run() -> Result<()> {
    provide(NEEDS, &mut ThisMachine)
}

/// Finds or installs what the tests of these crates need; an empty list stands for all crates.
pub(crate) fn run_for_tests(crates: &[&str]) -> Result<()> {
    provide(NEEDS.iter().filter(|need| need.used_by.tests_of(crates)), &mut ThisMachine)
}

/// The needs of [`NEEDS`], and what the benchmark of sagas needs besides.
pub(crate) fn run_for_sagas() -> Result<()> {
    run()?;
    provide(FOR_SAGAS, &mut ThisMachine)
}

/// What the check of a release needs.
pub(crate) fn run_for_releases() -> Result<()> {
    provide(FOR_RELEASES, &mut ThisMachine)
}

/// What the tests of the two shared stores need, with other versions of the servers besides.
pub(crate) fn run_for_versions<'a>(others: impl IntoIterator<Item = &'a Need>) -> Result<()> {
    run_for_tests(&["postgres", "redis"])?;
    provide(FOR_VERSIONS.iter().chain(others), &mut ThisMachine)
}

/// A text of a row with what is different on every machine, for which words in braces stand.
pub(crate) fn filled(text: &str) -> String {
    let mut text = text.replace(MACHINE, ARCH).replace(CPU, cpu(ARCH));
    if text.contains(PYTHON) {
        text = text.replace(PYTHON, &python());
    }
    if text.contains(VERSIONS) {
        let place = cache::versions(ThisMachine.is_root(), &home());
        text = text.replace(VERSIONS, &place.to_string_lossy());
    }
    text
}

/// What npm calls a processor.
fn cpu(machine: &str) -> &str {
    match machine {
        "aarch64" => "arm64",
        "x86_64" => "x64",
        other => other,
    }
}

/// What a machine can be asked; the tests have one that only remembers.
trait Machine {
    /// Whether a command exists and succeeds.
    fn succeeds(&mut self, cmd: &Cmd) -> bool;
    /// Whether this process runs as root.
    fn is_root(&mut self) -> bool;
    /// Runs a command that must succeed.
    fn run(&mut self, cmd: &Cmd) -> Result<()>;
}

struct ThisMachine;

impl Machine for ThisMachine {
    fn succeeds(&mut self, cmd: &Cmd) -> bool {
        cmd.succeeds()
    }

    fn is_root(&mut self) -> bool {
        Cmd::new("id", &["-u"]).stdout().is_ok_and(|id| id.trim() == "0")
    }

    fn run(&mut self, cmd: &Cmd) -> Result<()> {
        cmd.run()
    }
}

fn provide<'a>(
    needs: impl IntoIterator<Item = &'a Need>,
    machine: &mut impl Machine,
) -> Result<()> {
    let mut apt = Apt::default();
    let mut missing = Vec::new();
    for need in needs {
        if machine.succeeds(&probe(need)) {
            println!("present    {} ({})", need.name, need.why);
            continue;
        }
        let installed = match need.install {
            Install::Apt(package) => apt.install(package, machine),
            Install::Cargo(_) | Install::Npm(..) | Install::Unpacked(..) => {
                machine.run(&by_hand(need))
            }
            Install::Python(_) | Install::Wheel(..) => {
                machine.run(&new_environment()).and_then(|()| machine.run(&by_hand(need)))
            }
        };
        match installed {
            Ok(()) if machine.succeeds(&probe(need)) => {
                println!("installed  {} ({})", need.name, need.why);
            }
            Ok(()) => missing.push(complaint(need, "it was installed but does not answer")),
            Err(error) => missing.push(complaint(need, &format!("{error:#}"))),
        }
    }
    if !missing.is_empty() {
        bail!("this machine lacks what is needed:\n{}", missing.join("\n"));
    }
    Ok(())
}

fn probe(need: &Need) -> Cmd {
    let words: Vec<String> = need.probe.iter().map(|word| filled(word)).collect();
    match words.split_first() {
        Some((program, args)) => Cmd::new(program, args),
        // A row without a probe can never be shown to be there, so it must fail.
        None => Cmd::new("false", &[] as &[&str]),
    }
}

/// The command a person would type to install a need.
fn by_hand(need: &Need) -> Cmd {
    match need.install {
        Install::Apt(package) => Cmd::new("sudo", &["apt-get", "install", package]),
        Install::Cargo(name) => Cmd::new("cargo", &["install", name, "--locked"]),
        Install::Python(package) => {
            Cmd::new(&python(), &["-m", "pip", "install", "--quiet", package])
        }
        Install::Npm(alias, package) => {
            let what = filled(&format!("{alias}@npm:{package}"));
            let quietly = ["install", "--loglevel=error", "--no-audit", "--no-fund"];
            Cmd::new("npm", &quietly).args(&["--save-exact"]).args(&[
                "--prefix",
                &filled(VERSIONS),
                &what,
            ])
        }
        Install::Wheel(directory, package) => {
            let place = filled(&format!("{VERSIONS}/{directory}"));
            let quietly = ["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"];
            Cmd::new(&python(), &quietly).args(&["--target", &place, package])
        }
        Install::Unpacked(directory, packages) => {
            let place = filled(&format!("{VERSIONS}/{directory}"));
            Cmd::new("sh", &["xtask/src/unpack.sh", &place]).args(packages)
        }
    }
}

/// Makes our Python environment; one that is there stays.
fn new_environment() -> Cmd {
    Cmd::new("python3", &["-m", "venv", &environment().to_string_lossy()])
}

fn python() -> String {
    environment().join("bin/python").to_string_lossy().into_owned()
}

/// Where our Python environment is. The tests look there too.
fn environment() -> PathBuf {
    home().join("python")
}

/// Where we keep things.
fn home() -> PathBuf {
    let cache = cache::directory(|name| std::env::var(name).ok());
    cache.unwrap_or_else(|| workspace_root().join("target"))
}

fn complaint(need: &Need, problem: &str) -> String {
    let Need { name, why, .. } = need;
    let (probe, by_hand) = (probe(need), by_hand(need));
    format!("  {name} ({why}): {problem}\n    checked with `{probe}`; install it with `{by_hand}`")
}

/// The state of apt during one run.
#[derive(Debug, Default)]
struct Apt {
    /// Package lists are fetched once, and only when something is installed.
    updated: bool,
}

impl Apt {
    fn install(&mut self, package: &str, machine: &mut impl Machine) -> Result<()> {
        if !machine.succeeds(&Cmd::new("apt-get", &["--version"])) {
            bail!("there is no apt-get to install `{package}` with");
        }
        let sudo = if machine.is_root() {
            false
        } else if machine.succeeds(&Cmd::new("sudo", &["-n", "true"])) {
            true
        } else {
            bail!("installing `{package}` takes root or passwordless sudo");
        };
        if !self.updated {
            machine.run(&apt_get(sudo, &["update"]))?;
            self.updated = true;
        }
        machine.run(&apt_get(sudo, &["install", "--yes", package]))
    }
}

/// An apt command. The variable is set by `env` because sudo drops the caller's variables.
fn apt_get(sudo: bool, args: &[&str]) -> Cmd {
    let [env, assignment, apt_get] = APT;
    let cmd = if sudo { Cmd::new("sudo", &["-n", env]) } else { Cmd::new(env, &[] as &[&str]) };
    cmd.args(&[assignment, apt_get]).args(args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::UsedBy;

    const FIRST: Need = Need {
        name: "first",
        why: "for a test",
        used_by: UsedBy::AllTests,
        probe: &["first", "--version"],
        install: Install::Apt("first-package"),
    };
    const SECOND: Need = Need {
        name: "second",
        why: "for a test",
        used_by: UsedBy::AllTests,
        probe: &["second", "--version"],
        install: Install::Apt("second-package"),
    };
    const THIRD: Need = Need {
        name: "third",
        why: "for a test",
        used_by: UsedBy::AllTests,
        probe: &["third", "--version"],
        install: Install::Cargo("third-crate"),
    };

    /// A machine where a probe succeeds once something with its name was installed.
    #[derive(Default)]
    struct Fake {
        present: Vec<&'static str>,
        root: bool,
        broken_packages: bool,
        ran: Vec<String>,
    }

    impl Machine for Fake {
        fn succeeds(&mut self, cmd: &Cmd) -> bool {
            let line = cmd.to_string();
            let program = line.split(' ').next().unwrap();
            let installed = self.ran.iter().any(|ran| ran.contains(&format!("{program}-")));
            self.present.contains(&program) || (installed && !self.broken_packages)
        }

        fn is_root(&mut self) -> bool {
            self.root
        }

        fn run(&mut self, cmd: &Cmd) -> Result<()> {
            self.ran.push(cmd.to_string());
            Ok(())
        }
    }

    #[test]
    fn servers_are_started_by_the_testbed() {
        let expected = "cargo run --quiet --package justonce-testbed --example servers";
        assert_eq!(start().to_string(), expected);
    }

    #[test]
    fn nothing_runs_when_all_is_present() {
        let mut machine = Fake { present: vec!["first", "third"], ..Fake::default() };
        provide(&[FIRST, THIRD], &mut machine).unwrap();
        assert!(machine.ran.is_empty());
    }

    #[test]
    fn root_updates_once_and_installs_each() {
        let mut machine = Fake { present: vec!["apt-get"], root: true, ..Fake::default() };
        provide(&[FIRST, SECOND, THIRD], &mut machine).unwrap();
        let expected = [
            "env DEBIAN_FRONTEND=noninteractive apt-get update",
            "env DEBIAN_FRONTEND=noninteractive apt-get install --yes first-package",
            "env DEBIAN_FRONTEND=noninteractive apt-get install --yes second-package",
            "cargo install third-crate --locked",
        ];
        assert_eq!(machine.ran, expected);
    }

    #[test]
    fn a_python_package_gets_an_environment_first() {
        const STRANGE: Need = Need {
            name: "strange",
            why: "for a test",
            used_by: UsedBy::AllTests,
            probe: &["strange", "--version"],
            install: Install::Python("strange-package==1"),
        };
        let mut machine = Fake::default();
        provide(&[STRANGE], &mut machine).unwrap();
        let [environment, package] = machine.ran.try_into().unwrap();
        assert!(environment.starts_with("python3 -m venv "), "{environment}");
        let expected = "bin/python -m pip install --quiet strange-package==1";
        assert!(package.ends_with(expected), "{package}");
        assert!(
            probe(&Need { probe: &[PYTHON, "-c"], ..STRANGE })
                .to_string()
                .contains("bin/python -c")
        );
    }

    #[test]
    fn other_versions_lie_beside_each_other() {
        const OTHER: Need = Need {
            name: "other",
            why: "for a test",
            used_by: UsedBy::AllTests,
            probe: &["other", "{versions}/other"],
            install: Install::Npm("other", "@others/linux-{cpu}@2.0"),
        };
        const WHEEL: Need = Need { install: Install::Wheel("other-1", "other-lite==1.0"), ..OTHER };
        let versions = filled(VERSIONS);
        assert!(versions.ends_with("/justonce/versions"), "{versions}");
        let npm = by_hand(&OTHER).to_string();
        let package = format!("--prefix {versions} other@npm:@others/linux-{}@2.0", cpu(ARCH));
        assert!(npm.ends_with(&package), "{npm}");
        let pip = by_hand(&WHEEL).to_string();
        assert!(pip.ends_with(&format!("--target {versions}/other-1 other-lite==1.0")), "{pip}");
        const DEBIAN: Need = Need { install: Install::Unpacked("other-3", &["a", "b"]), ..OTHER };
        let unpack = by_hand(&DEBIAN).to_string();
        assert_eq!(unpack, format!("sh xtask/src/unpack.sh {versions}/other-3 a b"));
        assert_eq!(probe(&OTHER).to_string(), format!("other {versions}/other"));
        assert_eq!([cpu("x86_64"), cpu("aarch64")], ["x64", "arm64"]);
    }

    #[test]
    fn sudo_is_used_when_it_asks_for_no_password() {
        let mut machine = Fake { present: vec!["apt-get", "sudo"], ..Fake::default() };
        provide(&[FIRST], &mut machine).unwrap();
        let update = "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get update";
        assert_eq!(machine.ran.first().unwrap(), update);
    }

    #[test]
    fn without_rights_the_error_says_what_to_type() {
        let mut machine = Fake { present: vec!["apt-get"], ..Fake::default() };
        let error = provide(&[FIRST], &mut machine).unwrap_err().to_string();
        assert!(error.contains("takes root or passwordless sudo"), "{error}");
        assert!(error.contains("`sudo apt-get install first-package`"), "{error}");
        assert!(machine.ran.is_empty());
    }

    #[test]
    fn every_missing_need_is_named_at_once() {
        let mut machine = Fake::default();
        let error = provide(&[FIRST, SECOND], &mut machine).unwrap_err().to_string();
        assert!(error.contains("first (for a test)"), "{error}");
        assert!(error.contains("second (for a test)"), "{error}");
    }

    #[test]
    fn an_installation_that_does_not_help_is_a_failure() {
        let mut machine = Fake { broken_packages: true, ..Fake::default() };
        let error = provide(&[THIRD], &mut machine).unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
    }
}
