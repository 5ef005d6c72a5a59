//! The binary `justonce`: everything is in the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests, records and tables are freed on other threads than those that allocated them. The
/// system's allocator takes a lock for that: a fifth of the time of a request.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    justonce_server::run()
}
