//! What the figures were measured on, and how much memory this process takes.

use std::fs;
use std::time::{Duration, Instant};

/// One line about the machine.
pub(crate) fn describe() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches(['\t', ':', ' ']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gib = field_kib(&memory, "MemTotal:") / (1024 * 1024);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, {gib} GiB, Linux {}", kernel.trim())
}

/// The memory that this process takes now, in MiB.
pub(crate) fn resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field_kib(&status, "VmRSS:") / 1024
}

fn field_kib(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// The time, to measure with.
#[expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long something took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let value = work();
    (value, start.elapsed())
}
