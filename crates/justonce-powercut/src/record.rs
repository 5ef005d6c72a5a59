//! Records what worker processes ask of the file system.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};

use crate::calls::{Call, Event, Recording};
use crate::disk::Disk;
use crate::history::History;
use crate::mutants::Dropped;
use crate::restored;
use crate::strace::{self, CALLS, MAX_STRING_BYTES};
use crate::tree::{Tree, read_part};
use crate::workload::{End, Plan};

/// The store's directory below the root. It is made with the one it is in.
pub const STORE: &str = "data/store";

/// The processes of one run, each on what the one before it left.
#[derive(Debug)]
pub struct Run {
    /// Decides what they did.
    pub seed: u64,
    /// The directory in which they worked.
    pub root: PathBuf,
    /// What was there before, all of it durable.
    pub before: Tree,
    /// What had been said before.
    pub said: History,
    /// What they did.
    pub processes: Vec<Recording>,
}

/// The processes of a run: the first makes the store, and is killed; the second finds that.
#[must_use]
pub fn plans(seed: u64) -> [Plan; 2] {
    let plan = |process, phases, end| Plan { seed, process, operations: 48, phases, end };
    [plan(0, 2, End::Killed), plan(1, 3, End::Closes)]
}

impl Run {
    /// Records a run. `program` is the worker, `scratch` an empty directory for it.
    ///
    /// # Errors
    ///
    /// If `strace` cannot be started, the worker fails, or the model does not understand what it
    /// did.
    pub fn record(program: &Path, scratch: &Path, seed: u64) -> Result<Self> {
        let root = scratch.canonicalize()?.join("root");
        std::fs::create_dir_all(&root)?;
        let (before, said) = (Tree::default(), History::default());
        let run = Self { seed, root, before, said, processes: Vec::new() };
        run.with(program, scratch, &plans(seed))
    }

    /// Records a process that begins with what a cut of this run has left.
    ///
    /// # Errors
    ///
    /// As of [`record`](Self::record).
    pub fn record_after(
        &self,
        program: &Path,
        scratch: &Path,
        left: Tree,
        said: History,
    ) -> Result<Self> {
        std::fs::create_dir_all(&self.root)?;
        left.write(&self.root)?;
        let Self { seed, root, .. } = self;
        let plan = Plan { seed: *seed, process: 2, operations: 12, phases: 2, end: End::Closes };
        let run =
            Self { seed: *seed, root: root.clone(), before: left, said, processes: Vec::new() };
        run.with(program, scratch, &[plan])
    }

    /// The disk before the first process.
    ///
    /// # Errors
    ///
    /// If what was there before is no tree.
    pub fn disk(&self, dropped: Option<Dropped>) -> Result<Disk> {
        self.before.on_disk(&self.root, dropped)
    }

    /// Records a restore from a backup, and an opening of what it made. What is in it is said
    /// between the two.
    ///
    /// # Errors
    ///
    /// As of [`record`](Self::record).
    pub fn record_restore(program: &Path, scratch: &Path, seed: u64) -> Result<Self> {
        let scratch = scratch.canonicalize()?;
        // What is read lies outside of the disk.
        let outside = tempfile::tempdir_in(&scratch)?;
        let names = ["lost", "backup", "lines"].map(|name| outside.path().join(name));
        let [lost, backup, lines] = names;
        std::fs::write(&lines, restored::backed_up(&lost, &backup, seed)?)?;
        let root = scratch.join("root");
        std::fs::create_dir_all(&root)?;
        let (before, said) = (Tree::default(), History::default());
        let run = Self { seed, root: root.clone(), before, said, processes: Vec::new() };
        let log = outside.path().join("strace");
        let arguments = [OsStr::new("restore"), backup.as_ref(), lines.as_ref()];
        let output = traced(program, &log, &arguments, &root.join(STORE))?;
        if !output.status.success() {
            return Err(failed(&output).into());
        }
        let mut disk = run.disk(None)?;
        let processes = vec![recorded(&mut disk, &log, &root)?];
        std::fs::remove_dir_all(&root)?;
        Ok(Self { processes, ..run })
    }

    fn with(self, program: &Path, scratch: &Path, plans: &[Plan]) -> Result<Self> {
        let root = self.root.clone();
        let mut disk = self.disk(None)?;
        let mut processes = Vec::new();
        for plan in plans {
            let log = scratch.join(format!("process-{}.strace", plan.process));
            trace(program, &root, *plan, &log)?;
            let recording = recorded(&mut disk, &log, &root)?;
            disk.next_process(&recording);
            processes.push(recording);
        }
        std::fs::remove_dir_all(&root)?;
        Ok(Self { processes, ..self })
    }
}

/// Reads a recording, and follows it.
fn recorded(disk: &mut Disk, log: &Path, root: &Path) -> Result<Recording> {
    let mut recording = strace::parse(&std::fs::read(log)?)?;
    std::fs::remove_file(log)?;
    follow(disk, &mut recording)?;
    let compared = Tree::now(disk).compare(root);
    compared.context("the model has not understood the recording")?;
    Ok(recording)
}

fn trace(program: &Path, root: &Path, plan: Plan, log: &Path) -> Result<()> {
    let end = match plan.end {
        End::Closes => "closes",
        End::Killed => "killed",
    };
    let Plan { seed, process, operations, phases, .. } = plan;
    let numbers = [seed, process, operations, phases].map(|number| number.to_string());
    let names = ["--seed", "--process", "--operations", "--phases"].map(OsStr::new);
    let numbers = names.into_iter().zip(&numbers).flat_map(|(name, n)| [name, OsStr::new(n)]);
    let end = ["--end", end].map(OsStr::new);
    let arguments: Vec<&OsStr> =
        [OsStr::new("work")].into_iter().chain(numbers).chain(end).collect();
    let output = traced(program, log, &arguments, &root.join(STORE))?;
    let was_killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    if output.status.success() || (was_killed && plan.end == End::Killed) {
        return Ok(());
    }
    Err(failed(&output).into())
}

/// Runs the program on a store's directory, with everything that it asks for written down.
fn traced(program: &Path, log: &Path, arguments: &[&OsStr], store: &Path) -> Result<Output> {
    let calls: Vec<String> = CALLS.iter().map(|name| format!("?{name}")).collect();
    Command::new("strace")
        .args(["--follow-forks", "--seccomp-bpf", "-xx", "-s", &MAX_STRING_BYTES.to_string()])
        .args(["-e", &format!("trace={}", calls.join(",")), "-e", "signal=none"])
        .arg("-o")
        .arg(log)
        .arg(program)
        .args(arguments)
        .arg(store)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("cannot start `strace` (package strace)")
}

fn failed(output: &Output) -> WorkerFailed {
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    WorkerFailed(format!("the worker failed ({}): {complaint}", output.status))
}

/// The store did not do what it must without any cut: perhaps it did not open after `kill -9`.
#[derive(Debug)]
pub struct WorkerFailed(String);

impl fmt::Display for WorkerFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkerFailed {}

/// Goes through a recording. Of calls that the end of the process cut short, what they did is
/// looked up in what it left.
fn follow(disk: &mut Disk, recording: &mut Recording) -> Result<()> {
    let root = disk.root().to_owned();
    for place in 0..recording.events.len() {
        let Some(event) = recording.events.get(place).copied() else { break };
        if let Event::Begins(number) = event
            && let Some(recorded) = recording.calls.get_mut(number)
            && recorded.result.is_none()
        {
            look_up(disk, &root, &mut recorded.call)?;
        }
        disk.apply(recording, event)?;
    }
    Ok(())
}

fn look_up(disk: &Disk, root: &Path, call: &mut Call) -> Result<()> {
    let nothing =
        |name: &str| Call::Other { name: name.to_owned(), fds: Vec::new(), paths: Vec::new() };
    match call {
        Call::Write { fd, at, data } => {
            let Some(inode) = disk.open_inode(*fd) else { return Ok(()) };
            let at = at.or(disk.position(*fd)).unwrap_or(0);
            let found = read_part(&root.join(disk.path_of(inode)), at, data.len());
            // What was removed since cannot be told, and does not matter.
            let found = found.unwrap_or_default();
            let written = found.iter().zip(data.iter()).take_while(|(a, b)| a == b).count();
            *data = data.get(..written).unwrap_or_default().into();
        }
        Call::SetLen { fd, len } => {
            let Some(inode) = disk.open_inode(*fd) else { return Ok(()) };
            let found = root.join(disk.path_of(inode)).metadata().map(|found| found.len());
            if found.is_ok_and(|found| found != *len) {
                *call = nothing("ftruncate");
            }
        }
        Call::Sync { .. } | Call::Close { .. } | Call::Seek { .. } | Call::Duplicate { .. } => {}
        Call::Open { create: false, truncate: false, .. } => *call = nothing("open"),
        Call::Open { path, .. } | Call::MakeDirectory { path } | Call::Symlink { path, .. } => {
            if disk.real_path(path).is_some_and(|path| path.symlink_metadata().is_err()) {
                *call = nothing("open");
            }
        }
        Call::Unlink { path } | Call::Rename { from: path, .. } => {
            if disk.real_path(path).is_some_and(|path| path.symlink_metadata().is_ok()) {
                *call = nothing("unlink");
            }
        }
        Call::Other { .. } => {}
    }
    Ok(())
}
