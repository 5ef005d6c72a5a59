//! The binary `justonce`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    justonce_server::cli::run()
}
