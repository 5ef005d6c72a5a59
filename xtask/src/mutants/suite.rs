//! Runs the tests of test programs, each in a process of its own, until one fails.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::mutant::Mutant;
use super::program::Program;
use crate::cmd::Cmd;

/// The tests that compare a store with the rules: the likeliest to notice.
const COMPARING: [&str; 2] = ["conformance::", "production::"];
/// The rank of tests that are about something else.
const OTHERS: u8 = 2;
/// What takes less than this is tried before what takes longer.
const QUICK: Duration = Duration::from_secs(3);
/// A test that takes longer than this, and several times its usual time, hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// As long as its usual time is not known.
const HANGS_AT_LAST_AFTER: Duration = Duration::from_secs(600);
/// How many times its usual time a test may take besides.
const USUAL_TIMES: u32 = 4;
/// How often running tests are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One test.
#[derive(Clone, Debug)]
pub(super) struct Test {
    program: PathBuf,
    pub(super) name: String,
    /// How long it takes, as far as known.
    usual: Duration,
}

impl Test {
    /// The quick ones first, then those that compare most, which take longest.
    fn turn(&self) -> (bool, Duration) {
        match self.usual {
            usual if usual < QUICK => (false, usual),
            usual => (true, Duration::MAX - usual),
        }
    }

    /// When it counts as hanging.
    fn limit(&self) -> Duration {
        match self.usual {
            Duration::ZERO => HANGS_AT_LAST_AFTER,
            usual => HANGS_AFTER + usual * USUAL_TIMES,
        }
    }
}

/// A test that did not pass.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) test: String,
    pub(super) hung: bool,
}

/// All tests of a crate.
#[derive(Debug)]
pub(super) struct Suite {
    tests: Vec<Test>,
    /// The directory of the crate, where its tests run.
    crate_dir: PathBuf,
    /// Where the last words of each test are kept, and how long it took.
    directory: PathBuf,
    jobs: usize,
}

struct Running {
    test: Test,
    child: Child,
    since: Instant,
}

impl Suite {
    pub(super) fn new(
        programs: &[Program],
        without: &[&str],
        crate_dir: PathBuf,
        directory: PathBuf,
        jobs: usize,
    ) -> Result<Self> {
        let times = times(&directory);
        let mut tests = Vec::new();
        for program in programs {
            let list = Cmd::new(&program.path.to_string_lossy(), &["--list", "--format", "terse"]);
            let list = list.stdout()?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            for name in names.filter(|name| !without.iter().any(|part| name.contains(part))) {
                let usual = times.get(name).copied().unwrap_or_default();
                let (program, name) = (program.path.clone(), name.to_owned());
                tests.push(Test { program, name, usual });
            }
        }
        Ok(Self { tests, crate_dir, directory, jobs })
    }

    /// Whether the times of tests are known; new tests count as quick.
    pub(super) fn is_measured(&self) -> bool {
        self.tests.iter().any(|test| !test.usual.is_zero())
    }

    /// Runs all tests, which must pass, and remembers how long each takes.
    pub(super) fn measure(&mut self) -> Result<()> {
        println!("{} tests without a mutant", self.tests.len());
        let (failed, took) = self.run(self.tests.clone(), usize::MAX)?;
        if !failed.is_empty() {
            let names: Vec<_> = failed.into_iter().map(|failed| failed.test).collect();
            bail!("without a mutant these tests fail: {}", names.join(", "));
        }
        let mut text = String::new();
        for test in &mut self.tests {
            test.usual = took.get(&test.name).copied().unwrap_or_default();
            text.push_str(&format!("{} {}\n", test.usual.as_millis().max(1), test.name));
        }
        fs::write(times_file(&self.directory), text).context("cannot keep the times of tests")
    }

    /// Runs tests until one notices the mutant. With a limit only those that are about its place or
    /// compare the store with the rules, and usually take less.
    pub(super) fn notices(
        &self,
        mutant: &Mutant,
        limit: Option<Duration>,
    ) -> Result<Option<Failed>> {
        let mut tests = self.tests.clone();
        tests.sort_by_key(|test| (rank(&test.name, mutant.by), test.turn()));
        tests.retain(|test| {
            limit.is_none_or(|limit| test.usual < limit && rank(&test.name, mutant.by) < OTHERS)
        });
        loop {
            let (failed, passed) = self.run(tests.clone(), 1)?;
            let Some(failed) = failed.into_iter().next() else { return Ok(None) };
            let again: Vec<Test> =
                tests.iter().filter(|test| test.name == failed.test).cloned().collect();
            // A test may have failed because the machine was busy: it must fail twice.
            if failed.hung || !self.run(again, 1)?.0.is_empty() {
                return Ok(Some(failed));
            }
            tests.retain(|test| test.name != failed.test && !passed.contains_key(&test.name));
        }
    }

    /// Runs tests in their order until so many have failed.
    fn run(&self, tests: Vec<Test>, failures: usize) -> Result<(Vec<Failed>, Times)> {
        let mut waiting = tests.into_iter();
        let mut running: Vec<Running> = Vec::new();
        let (mut failed, mut took) = (Vec::new(), Times::new());
        loop {
            while running.len() < self.jobs {
                let Some(test) = waiting.next() else { break };
                running.push(self.start(test)?);
            }
            if running.is_empty() {
                return Ok((failed, took));
            }
            let mut still = Vec::new();
            for mut one in running.drain(..) {
                let elapsed = one.since.elapsed();
                match one.child.try_wait()? {
                    Some(status) if status.success() => {
                        took.insert(one.test.name, elapsed);
                    }
                    Some(_) => failed.push(Failed { test: one.test.name, hung: false }),
                    None if elapsed > one.test.limit() => {
                        end(&mut one.child)?;
                        failed.push(Failed { test: one.test.name, hung: true });
                    }
                    None => still.push(one),
                }
            }
            running = still;
            if failed.len() >= failures {
                running.iter_mut().try_for_each(|one| end(&mut one.child))?;
                return Ok((failed, took));
            }
            pause();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "how long a test takes is what is measured")]
    fn start(&self, test: Test) -> Result<Running> {
        let log = self.directory.join("log").join(test.name.replace("::", "."));
        let log = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = Command::new(&test.program);
        command.args(["--exact", &test.name, "--nocapture", "--test-threads", "1"]);
        command.current_dir(&self.crate_dir).env("CARGO_MANIFEST_DIR", &self.crate_dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", test.name))?;
        Ok(Running { test, child, since: Instant::now() })
    }
}

type Times = BTreeMap<String, Duration>;

/// In which turn a test is run: those about the place of the mutant, those that compare the store
/// with the rules, all others.
fn rank(test: &str, by: &str) -> u8 {
    if !by.is_empty() && test.contains(by) {
        return 0;
    }
    if COMPARING.iter().any(|part| test.starts_with(part)) { 1 } else { OTHERS }
}

/// Its servers end with it.
fn end(child: &mut Child) -> Result<()> {
    child.kill().context("cannot end a test")?;
    child.wait().context("cannot end a test").map(drop)
}

#[expect(clippy::disallowed_methods, reason = "processes of tests give no common signal")]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}

fn times_file(directory: &Path) -> PathBuf {
    directory.join("times")
}

/// How long tests took in the run before.
fn times(directory: &Path) -> Times {
    let text = fs::read_to_string(times_file(directory)).unwrap_or_default();
    let time = |line: &str| {
        let (millis, name) = line.split_once(' ')?;
        Some((name.to_owned(), Duration::from_millis(millis.parse().ok()?)))
    };
    text.lines().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(directory: &Path, scripts: &[(&str, &str)]) -> Suite {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(directory.join("log")).unwrap();
        let mut tests = Vec::new();
        for (name, script) in scripts {
            let program = directory.join(name);
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            tests.push(Test { program, name: (*name).to_owned(), usual: Duration::ZERO });
        }
        let directory = directory.to_owned();
        Suite { tests, crate_dir: directory.clone(), directory, jobs: 2 }
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let directory = std::env::temp_dir().join(format!("justonce-suite-{}", std::process::id()));
        let mutant = super::super::mutant::mutant("a", "b", "c");
        let mut fine = suite(&directory, &[("one", "exit 0"), ("two", "exit 0")]);
        assert!(fine.notices(&mutant, None).unwrap().is_none());
        fine.measure().unwrap();
        assert!(fine.is_measured());
        // The last one would take forever.
        let hangs = "exec sleep 1000";
        let broken = [("one", "exit 0"), ("two", "exit 1"), ("three", hangs)];
        let mut broken = suite(&directory, &broken);
        assert_eq!(broken.notices(&mutant, None).unwrap().unwrap().test, "two");
        broken.tests.truncate(2);
        assert!(broken.measure().unwrap_err().to_string().ends_with(": two"));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_failure_that_does_not_come_again_notices_nothing() {
        let name = format!("justonce-suite-once-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let fails_once = "mkdir failed 2>/dev/null && exit 1; exit 0";
        let suite = suite(&directory, &[("conformance::flaky", fails_once), ("fine", "exit 0")]);
        let mutant = super::super::mutant::mutant("a", "b", "c");
        assert!(suite.notices(&mutant, None).unwrap().is_none());
        assert!(directory.join("failed").is_dir(), "it failed once");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn tests_about_the_place_come_first() {
        assert_eq!(rank("outcomes::kept", "outcomes::"), 0);
        assert_eq!(rank("conformance::redis::sweep", "outcomes::"), 1);
        assert_eq!(rank("outages::kept", ""), 2);
    }
}
