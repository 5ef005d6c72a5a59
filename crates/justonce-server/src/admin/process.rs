//! The metrics of the process, under the names that all Prometheus clients use.

use justonce::Timestamp;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;

use super::metrics::Text;
use crate::metrics::scraped::{CPU, MAX_FDS, MEMORY, OPEN_FDS, START_TIME};

/// Writes them. Those that the system does not give are left out.
pub(super) fn write(text: &mut Text, started: Timestamp) {
    if let Some(bytes) = resident_bytes() {
        text.one(&MEMORY, bytes as f64);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // The directory itself is open while it is read.
        text.one(&OPEN_FDS, open.count().saturating_sub(1) as f64);
    }
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        text.one(&MAX_FDS, most as f64);
    }
    text.one(&START_TIME, started.as_millis() as f64 / 1000.0);
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let microseconds = usage.user_time() + usage.system_time();
        text.one(&CPU, microseconds.num_microseconds() as f64 / 1e6);
    }
}

/// The resident memory, which the system gives in KiB.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
