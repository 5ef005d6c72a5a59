//! The binary `justonce`: everything is in the library.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests, records and tables are freed by other threads than those that made them. The system's
/// allocator takes a lock for each and spends a fifth of a request on it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    justonce_server::cli::run()
}
