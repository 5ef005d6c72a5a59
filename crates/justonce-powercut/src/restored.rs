//! A restore from a backup: once it was said to be done, what it has made outlives a power cut.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{RestoreOptions, restore};

use crate::workload::{End, Plan, Say, clock_of, work};

const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// When the backup is made, and when it is restored.
const BACKED_UP: u64 = 1;
const RESTORED: u64 = 2;

/// Makes a store as a worker does, and a backup of it. Returns the lines that say what is in it.
///
/// # Errors
///
/// If one of the two cannot be made.
pub fn backed_up(store: &Path, backup: &Path, seed: u64) -> Result<String> {
    let lines: Arc<Mutex<String>> = Arc::default();
    let to = Arc::clone(&lines);
    let say: Say = Arc::new(move |line| {
        let mut lines = to.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&line);
        lines.push('\n');
    });
    work(store, Plan { seed, process: 0, operations: 12, phases: 2, end: End::Closes }, &say)?;
    let store = opened(store, BACKED_UP)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(store.backup(backup))?;
    drop(store);
    Ok(std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Restores a backup, says what is in it, and opens it as a gateway does that starts then.
///
/// # Errors
///
/// If that cannot be done.
pub fn restored(backup: &Path, lines: &Path, to: &Path, say: &Say) -> Result<()> {
    let options = RestoreOptions::default().clock(clock_of(RESTORED));
    restore(backup, to, &options, &mut |_| {})?;
    std::fs::read_to_string(lines)?.lines().for_each(|line| say(line.to_owned()));
    drop(opened(to, RESTORED)?);
    Ok(())
}

fn opened(store: &Path, process: u64) -> Result<EmbeddedStore> {
    let builder = EmbeddedStore::builder(store).cache_bytes(CACHE_BYTES);
    Ok(builder.clock(clock_of(process)).open()?)
}
