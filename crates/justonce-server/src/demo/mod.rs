//! Shows it at work.

use std::process::ExitCode;

/// The options of the demo.
#[derive(clap::Args, Debug)]
pub struct DemoOptions {}

/// Runs it.
///
/// # Errors
///
/// Not yet.
pub fn run(_: DemoOptions) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
