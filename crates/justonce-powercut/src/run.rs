//! Cuts recorded runs at many points, and checks what is left.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};

use crate::calls::{Call, Event, PathAt};
use crate::check::Check;
use crate::cut::{Cut, Left};
use crate::disk::Disk;
use crate::history::History;
use crate::mutants::Dropped;
use crate::random::Random;
use crate::record::Run;
use crate::tree::Tree;

/// One of so many states is opened twice: what the first opening wrote must be good too.
const TWICE: usize = 8;

/// A cut: in which process, and before which of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The process.
    pub process: usize,
    /// The event that does not happen any more.
    pub event: usize,
}

/// What is done with a recorded run.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// How many states are made.
    pub states: usize,
    /// The syncs that are left out.
    pub dropped: Option<Dropped>,
    /// Whether the first failure is enough.
    pub until_failure: bool,
    /// Where states are written.
    pub scratch: &'a Path,
    /// Where a state that failed is kept.
    pub keep: Option<&'a Path>,
}

/// A state in which something was lost.
#[derive(Debug)]
pub struct Failure {
    /// Which state of the run it is.
    pub state: usize,
    /// Where the cut was.
    pub point: Point,
    /// What was found.
    pub message: String,
    /// What the cut took.
    pub losses: String,
    /// Where the state is kept.
    pub kept: Option<PathBuf>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { process, event } = self.point;
        writeln!(f, "state {}, process {process} before event {event}:", self.state)?;
        writeln!(f, "{}", self.message)?;
        if let Some(kept) = &self.kept {
            writeln!(f, "kept in {}, with the lines that were said until then", kept.display())?;
        }
        f.write_str(&self.losses)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// How many states were checked.
    pub states: usize,
    /// How many of them had lost something by the cut.
    pub with_losses: usize,
    /// How many acknowledgements they had to keep, in all.
    pub acknowledged: usize,
    /// Those that failed.
    pub failures: Vec<Failure>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.states += other.states;
        self.with_losses += other.with_losses;
        self.acknowledged += other.acknowledged;
        self.failures.extend(other.failures);
    }
}

struct State {
    number: usize,
    point: Point,
    left: Left,
    history: History,
}

/// Records a run, another process on what one cut of it has left, and a restore from a backup; and
/// makes and checks states of all. Five of eight are of the first, and one is of the last.
///
/// # Errors
///
/// If that cannot be done; what was lost is in the report.
pub fn check_seed(program: &Path, seed: u64, options: Options<'_>) -> Result<Report> {
    let run = Run::record(program, options.scratch, seed)?;
    let (after, restored) = (options.states / 4, options.states / 8);
    let first = Options { states: options.states - after - restored, ..options };
    let mut report = check(&run, first)?;
    if !report.failures.is_empty() {
        return Ok(report);
    }
    let (left, said) = one_cut(&run)?;
    let run = run.record_after(program, options.scratch, left, said);
    let run = run.context("a process on what a cut has left")?;
    report.add(check(&run, Options { states: after, ..options })?);
    if !report.failures.is_empty() {
        return Ok(report);
    }
    let run = Run::record_restore(program, options.scratch, seed).context("a restore")?;
    report.add(check(&run, Options { states: restored, ..options })?);
    Ok(report)
}

/// Makes and checks the states of one run.
///
/// # Errors
///
/// If that cannot be done; what was lost is in the report.
pub fn check(run: &Run, options: Options<'_>) -> Result<Report> {
    let points = points(run, options.states)?;
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let report = Mutex::new(Report::default());
    let (sender, states) = sync_channel::<State>(1);
    let states = Mutex::new(states);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (states, report) = (&states, &report);
                scope.spawn(move || check_all(states, report, options, worker))
            })
            .collect();
        let made = each_state(run, &points, options.dropped, |state| {
            let is_enough = options.until_failure && !locked(&report).failures.is_empty();
            Ok(!is_enough && sender.send(state).is_ok())
        });
        drop(sender);
        for worker in workers {
            worker.join().ok().context("a thread panicked")??;
        }
        made
    })?;
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one cut of a run leaves, and what had been said until then.
///
/// # Errors
///
/// If the run cannot be followed.
pub fn one_cut(run: &Run) -> Result<(Tree, History)> {
    let mut found = None;
    each_state(run, &points(run, 2)?, None, |state| {
        found = Some((state.left.tree, state.history));
        // The later one of the two.
        Ok(true)
    })?;
    found.context("nothing was recorded")
}

/// Makes the states one after the other, as long as they are wanted.
fn each_state(
    run: &Run,
    points: &[Point],
    dropped: Option<Dropped>,
    mut take: impl FnMut(State) -> Result<bool>,
) -> Result<()> {
    let mut disk = run.disk(dropped)?;
    let mut history = run.said.clone();
    let mut wanted = points.iter().copied().enumerate().peekable();
    for (process, recording) in run.processes.iter().enumerate() {
        for (event, happens) in recording.events.iter().copied().enumerate() {
            while let Some((number, point)) =
                wanted.next_if(|(_, point)| *point <= Point { process, event })
            {
                let random = Random::seeded(run.seed, 1 + number as u64);
                let left = Cut::of(&disk, random);
                if !take(State { number, point, left, history: history.clone() })? {
                    return Ok(());
                }
            }
            if wanted.peek().is_none() {
                return Ok(());
            }
            if let Some(line) = recording.line(happens) {
                history.add(line).with_context(|| format!("the worker said `{line}`"))?;
            }
            disk.apply(recording, happens)?;
        }
        disk.next_process(recording);
    }
    Ok(())
}

/// Where the run is cut. Half of the cuts are spread over all that happens; most of this are syncs
/// of the log. The others are spread over the kinds of things that happen.
fn points(run: &Run, count: usize) -> Result<Vec<Point>> {
    let mut all = Vec::new();
    let mut kinds: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    let mut disk = run.disk(None)?;
    for (process, recording) in run.processes.iter().enumerate() {
        for (event, happens) in recording.events.iter().copied().enumerate() {
            disk.apply(recording, happens)?;
            let call = recording.call(happens).map(|recorded| &recorded.call);
            let Some(kind) = call.and_then(|call| kind(&disk, call)) else { continue };
            let half = if matches!(happens, Event::Begins(_)) { "begins" } else { "ends" };
            // It has happened, and what follows has not.
            let point = Point { process, event: event + 1 };
            kinds.entry(format!("{process} {kind} {half}")).or_default().push(point);
            all.push(point);
        }
        disk.next_process(recording);
    }
    let kinds: Vec<Vec<Point>> = kinds.into_values().collect();
    let mut random = Random::seeded(run.seed, 0);
    let mut points: Vec<Point> = (0..count)
        .filter_map(|number| {
            let among = if number % 2 == 0 { Some(&all) } else { random.one_of(&kinds) };
            random.one_of(among?).copied()
        })
        .collect();
    points.sort_unstable();
    Ok(points)
}

/// What kind of thing a call is, if it concerns the store.
fn kind(disk: &Disk, call: &Call) -> Option<String> {
    let open = |fd: i32| disk.open_inode(fd).map(|inode| disk.path_of(inode));
    let named = |path: &PathAt| disk.real_path(path);
    let (what, path) = match call {
        Call::Open { path, create, .. } => ("opens", named(path).filter(|_| *create)?),
        Call::Write { fd, .. } => ("writes", open(*fd)?),
        Call::SetLen { fd, .. } => ("sets the length of", open(*fd)?),
        Call::Sync { fd } => ("syncs", open(*fd)?),
        Call::Rename { to, .. } => ("renames", named(to)?),
        Call::Unlink { path } => ("removes", named(path)?),
        Call::MakeDirectory { path } => ("makes", named(path)?),
        Call::Symlink { path, .. } => ("links", named(path)?),
        Call::Seek { .. } | Call::Close { .. } | Call::Duplicate { .. } | Call::Other { .. } => {
            return None;
        }
    };
    let path = path.display().to_string();
    let without_numbers: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
    // The names of temporary files are random.
    let without_names = without_numbers.split(".tmp").next().unwrap_or_default();
    Some(format!("{what} {without_names}"))
}

fn check_all(
    states: &Mutex<Receiver<State>>,
    report: &Mutex<Report>,
    options: Options<'_>,
    worker: usize,
) -> Result<()> {
    let root = options.scratch.join(format!("state-{worker}"));
    loop {
        let next = locked(states).recv();
        let Ok(state) = next else { return Ok(()) };
        std::fs::create_dir_all(&root)?;
        state.left.tree.write(&root).context("cannot write the state")?;
        let openings = if state.number.is_multiple_of(TWICE) { 2 } else { 1 };
        let checked = Check { history: &state.history, openings }.run(&root);
        std::fs::remove_dir_all(&root).context("cannot remove the state")?;
        let mut report = locked(report);
        report.states += 1;
        report.with_losses += usize::from(state.left.losses.contains("lost"));
        report.acknowledged += state.history.acknowledged;
        if let Err(error) = checked {
            let first = report.failures.is_empty();
            let keep = options.keep.filter(|_| first);
            let kept = keep.map(|keep| kept(keep, &state)).transpose()?;
            let State { number, point, left, .. } = state;
            let message = format!("{error:#}");
            let failure = Failure { state: number, point, message, losses: left.losses, kept };
            report.failures.push(failure);
        }
    }
}

/// Writes the state once more, as it was before it was opened, and what had been said until then.
fn kept(keep: &Path, state: &State) -> Result<PathBuf> {
    let kept = keep.join(format!("state-{}", state.number));
    std::fs::create_dir_all(&kept)?;
    state.left.tree.write(&kept).context("cannot keep the state")?;
    std::fs::write(kept.join("losses.txt"), &state.left.losses)?;
    std::fs::write(kept.join("lines.txt"), state.history.to_lines())?;
    Ok(kept)
}
