//! Callers: a replay goes to the caller of the first request, in whatever spelling, and to nobody
//! else.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/justonce-http/tests/contract/oracles/callers.rs"]
mod callers;

// The first byte is the scope. Then the headers of two requests, with an empty line between them;
// the first byte of a line says which header it is.
fuzz_target!(|input: &[u8]| {
    let Some((scope, rest)) = input.split_first() else { return };
    let mut heads = [HeaderMap::new(), HeaderMap::new()];
    let mut current = heads.iter_mut();
    let mut head = current.next();
    for line in rest.split(|byte| *byte == b'\n') {
        let Some((which, value)) = line.split_first() else {
            head = current.next();
            continue;
        };
        let name = callers::headers().into_iter().nth(usize::from(*which) % 5);
        if let (Some(head), Some(name), Ok(value)) =
            (head.as_mut(), name, HeaderValue::from_bytes(value))
        {
            head.append(name, value);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    let [first, second] = heads;
    runtime.block_on(callers::check(callers::scope(*scope), &first, &second));
});
