//! Paths: two of them that one server could take for the same resource fall under one route, and
//! the service gets the resource that the client named.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/justonce-http/tests/contract/oracles/paths.rs"]
mod paths;

// One path in each line.
fuzz_target!(|input: &str| {
    let (one, other) = input.split_once('\n').unwrap_or((input, input));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(paths::check(one, other));
});
