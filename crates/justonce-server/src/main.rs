//! The binary `justonce`: everything is in the library.

use std::process::ExitCode;

/// Requests are many small allocations: this allocator is measurably faster at those than the
/// system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    justonce_server::cli::run()
}
