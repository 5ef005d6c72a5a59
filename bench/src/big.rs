//! Ten million completed records, or more: duplicates, memory, reopening, and retention under load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use justonce::{
    EmbeddedStore, Engine, Entropy, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope,
};

use crate::load::{percentile, runtime};
use crate::machine::{now, resident_mib, timed};
use crate::report::{Report, median};

/// The outcome of one operation, in bytes.
const OUTCOME_BYTES: u64 = 300;
/// How many operations fill the store at once: large batches, few syncs.
const FILLERS: u64 = 1000;
/// How many duplicates are timed.
const DUPLICATES: u64 = 200_000;
/// How many begins a round times, without and with reclaiming.
const BEGINS: u64 = 20_000;
/// One record in this many expires during the run.
const SHORT_LIVED: u64 = 10;
/// How long the short-lived live, in seconds: longer than the filling takes, and than a filled
/// store is kept for a measurement at a quiet moment.
const SHORT_LIFE_S: u64 = 24 * 3600;
/// From so many records on more is asked.
const HUGE: u64 = 50_000_000;
/// So many bytes of memory a record may cost then.
const HUGE_RECORD_BYTES: u64 = 48;
/// The file beside a store that is filled, with the number of its records.
const FILLED: &str = "filled";
/// The caches: what fits into the memory that is allowed.
const CACHE_BYTES: u64 = 512 * 1024 * 1024;
const HOT_BYTES: u64 = 64 * 1024 * 1024;

/// A clock that can be moved over the short life.
type Offset = Arc<std::sync::atomic::AtomicU64>;

/// What a store with so many records must keep to.
struct Bounds {
    reopen: Duration,
    duplicate: Duration,
    resident_mib: u64,
    reclaim: f64,
}

impl Bounds {
    fn of(records: u64) -> Self {
        if records < HUGE {
            return Self {
                reopen: Duration::from_secs(10),
                duplicate: Duration::from_millis(1),
                resident_mib: 1536,
                reclaim: 2.0,
            };
        }
        Self {
            reopen: Duration::from_secs(5),
            duplicate: Duration::from_micros(300),
            resident_mib: records * HUGE_RECORD_BYTES / (1 << 20),
            reclaim: 1.5,
        }
    }
}

/// Fills a store, unless an earlier run has done it.
pub(crate) fn prepare(records: u64, directory: &Path) -> Result<()> {
    let marker = directory.join(FILLED);
    if std::fs::read_to_string(&marker).is_ok_and(|text| text == records.to_string()) {
        return Ok(());
    }
    let store = directory.join("store");
    ensure!(!store.exists(), "{} is not filled with {records} records: remove it", store.display());
    let engine = open(&store, &Offset::default())?;
    let runtime = runtime()?;
    let (filled, took) = timed(|| runtime.block_on(fill(&engine, records)));
    filled?;
    println!("{records} records in {:.0} s", took.as_secs_f64());
    std::fs::write(marker, records.to_string())?;
    Ok(())
}

/// Measures a filled store, which is of no use for another measurement then.
pub(crate) fn measure(report: &mut Report, records: u64, directory: &Path) -> Result<()> {
    let (path, bounds) = (directory.join("store"), Bounds::of(records));
    std::fs::remove_file(directory.join(FILLED))?;
    let runtime = runtime()?;
    let offset = Offset::default();
    let filled_mib = resident_mib();
    let (engine, reopened) = timed(|| open(&path, &offset));
    let engine = engine?;
    report.add(
        &format!("{records} records: reopen"),
        format!("{:.1} s", reopened.as_secs_f64()),
        &format!("≤ {} s", bounds.reopen.as_secs()),
        reopened <= bounds.reopen,
    );
    let p99 = runtime.block_on(duplicates(&engine, records))?;
    report.add(
        &format!("{records} records: duplicate p99"),
        format!("{:.3} ms", p99.as_secs_f64() * 1000.0),
        &format!("≤ {} ms", bounds.duplicate.as_secs_f64() * 1000.0),
        p99 <= bounds.duplicate,
    );
    let resident = resident_mib().max(filled_mib);
    report.add(
        &format!("{records} records: resident memory"),
        format!("{resident} MiB ({} bytes a record)", resident * (1 << 20) / records),
        &format!("≤ {} MiB", bounds.resident_mib),
        resident <= bounds.resident_mib,
    );
    runtime.block_on(reclaim(report, &engine, &offset, records / SHORT_LIVED, bounds.reclaim))
}

fn open(path: &Path, offset: &Offset) -> Result<Engine> {
    let (offset, clock) = (Arc::clone(offset), justonce::SystemClock::new());
    let clock = move || {
        use justonce::Clock;
        clock.now().after(Duration::from_secs(offset.load(Ordering::Relaxed)))
    };
    let store = EmbeddedStore::builder(path)
        .cache_bytes(CACHE_BYTES)
        .hot_bytes(HOT_BYTES)
        .clock(clock)
        .open()?;
    Ok(Engine::new(store))
}

fn operation(scope: &Scope, policy: &Arc<Policy>, name: &str, number: u64) -> Result<Operation> {
    let key = Key::client(format!("{name}-{number}"))?;
    Ok(Operation::without_fingerprint(scope.clone(), key).with_policy(Arc::clone(policy)))
}

fn policy(short: bool, on_lapsed: OnLapsed) -> Result<Arc<Policy>> {
    let life = Duration::from_secs(if short { SHORT_LIFE_S } else { 30 * 24 * 3600 });
    Ok(Arc::new(Policy::builder().on_lapsed(on_lapsed).retention(life).build()?))
}

/// Half text, half noise, as bodies are.
fn outcome(entropy: &Entropy) -> Outcome {
    let noise = (0..OUTCOME_BYTES / 16).map(|_| format!("{:016x}", entropy.next_u64()));
    Outcome::bytes(noise.collect::<String>())
}

fn bar(length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(what);
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {bar:40} {human_pos}/{human_len} {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    bar
}

async fn fill(engine: &Engine, records: u64) -> Result<()> {
    let bar = bar(records, "filling");
    let scope = Scope::builder().tenant("acme").build()?;
    let policies = [policy(false, OnLapsed::Rerun)?, policy(true, OnLapsed::Rerun)?];
    let tasks: Vec<_> = (0..FILLERS)
        .map(|filler| {
            let (engine, scope, bar) = (engine.clone(), scope.clone(), bar.clone());
            let [long, short] = policies.clone();
            tokio::spawn(async move {
                let entropy = Entropy::seeded(filler);
                for number in (filler..records).step_by(usize::try_from(FILLERS)?) {
                    let policy = if number % SHORT_LIVED == 0 { &short } else { &long };
                    let operation = operation(&scope, policy, "order", number)?;
                    let outcome = outcome(&entropy);
                    engine.run(&operation, async |_| Ok(outcome)).await?;
                    bar.inc(1);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    bar.finish();
    Ok(())
}

/// The p99 of duplicates of operations drawn at random, from two callers at once.
async fn duplicates(engine: &Engine, records: u64) -> Result<Duration> {
    let bar = bar(DUPLICATES, "duplicates");
    let scope = Scope::builder().tenant("acme").build()?;
    let policy = policy(false, OnLapsed::Rerun)?;
    let tasks: Vec<_> = (0..2)
        .map(|caller| {
            let (engine, scope, policy) = (engine.clone(), scope.clone(), Arc::clone(&policy));
            let bar = bar.clone();
            tokio::spawn(async move {
                let entropy = Entropy::seeded(caller);
                let mut samples = Vec::new();
                for _ in 0..DUPLICATES / 2 {
                    let number = entropy.next_u64() % records;
                    let operation = operation(&scope, &policy, "order", number)?;
                    let start = now();
                    let ran = engine.run(&operation, async |_| Ok(Outcome::empty())).await?;
                    samples.push(start.elapsed());
                    ensure!(matches!(ran, Ran::Replayed(_)), "{number} is lost: {ran:?}");
                    bar.inc(1);
                }
                anyhow::Ok(samples)
            })
        })
        .collect();
    let mut samples = Vec::new();
    for task in tasks {
        samples.extend(task.await??);
    }
    bar.finish();
    Ok(percentile(&mut samples, 0.99))
}

/// The p99 of first-time begins, alone and while a tenth of the records is reclaimed: in turn,
/// because the disk's mood changes from minute to minute.
async fn reclaim(
    report: &mut Report,
    engine: &Engine,
    offset: &Offset,
    due: u64,
    bound: f64,
) -> Result<()> {
    offset.store(2 * SHORT_LIFE_S, Ordering::Relaxed);
    let bar = bar(due, "reclaiming");
    let sweeping = Arc::new(AtomicBool::new(false));
    let (mut alone, mut during) = (Vec::new(), Vec::new());
    let mut swept = Swept { removed: 0, took: Duration::ZERO, more: true };
    for round in 0.. {
        alone.push(begins(engine, &format!("alone-{round}")).await?.as_secs_f64());
        if !swept.more {
            break;
        }
        sweeping.store(true, Ordering::Relaxed);
        let task = tokio::spawn(sweep(engine.clone(), Arc::clone(&sweeping), bar.clone()));
        let p99 = begins(engine, &format!("during-{round}")).await?.as_secs_f64();
        // A round whose sweep ran out of work half-way is no round with a sweep.
        if sweeping.swap(false, Ordering::Relaxed) {
            during.push(p99);
        }
        let part = task.await??;
        swept.removed += part.removed;
        swept.took += part.took;
        swept.more = part.more;
    }
    bar.finish();
    ensure!(swept.removed >= due, "{} of {due} were reclaimed", swept.removed);
    let (alone, during) = (median(alone), median(during));
    let ratio = during / alone;
    report.add(
        &format!(
            "begin p99 while {} records are reclaimed (in {:.0} s)",
            swept.removed,
            swept.took.as_secs_f64()
        ),
        format!("{ratio:.2} × (alone {:.2} ms)", alone * 1000.0),
        &format!("≤ {bound} ×"),
        ratio <= bound,
    );
    Ok(())
}

/// What has been swept so far.
struct Swept {
    removed: u64,
    took: Duration,
    more: bool,
}

/// Sweeps as the engine's reaper does, until told to stop or nothing is left.
async fn sweep(engine: Engine, on: Arc<AtomicBool>, bar: ProgressBar) -> Result<Swept> {
    let start = now();
    let mut swept = Swept { removed: 0, took: Duration::ZERO, more: true };
    while swept.more && on.load(Ordering::Relaxed) {
        let report = engine.sweep(500).await?;
        swept.removed += report.removed;
        swept.more = report.more;
        bar.inc(report.removed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if !swept.more {
        on.store(false, Ordering::Relaxed);
    }
    swept.took = start.elapsed();
    Ok(swept)
}

/// The p99 of begins under `hold`, from eight callers at once.
async fn begins(engine: &Engine, name: &str) -> Result<Duration> {
    let scope = Scope::builder().tenant("acme").build()?;
    let policy = policy(false, OnLapsed::Hold)?;
    let tasks: Vec<_> = (0..8)
        .map(|caller| {
            let (engine, scope, policy) = (engine.clone(), scope.clone(), Arc::clone(&policy));
            let name = format!("{name}-{caller}");
            tokio::spawn(async move {
                let mut samples = Vec::new();
                for number in 0..BEGINS / 8 {
                    let operation = operation(&scope, &policy, &name, number)?;
                    let start = now();
                    let begun = engine.begin(&operation).await?;
                    samples.push(start.elapsed());
                    if let justonce::engine::Begun::Claimed(mut claim) = begun {
                        let _ = claim.complete(Outcome::empty()).await?;
                    }
                }
                anyhow::Ok(samples)
            })
        })
        .collect();
    let mut samples = Vec::new();
    for task in tasks {
        samples.extend(task.await??);
    }
    Ok(percentile(&mut samples, 0.99))
}
