//! What the command can be told.

use clap::Args;

/// The options of `justonce demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Exit after the table, with a failure if the verdict is one, instead of staying up. Without a
    /// terminal for the output it always does.
    #[arg(long)]
    pub once: bool,
    /// How many operations the client performs.
    #[arg(long, value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub operations: u32,
    /// Repeats the chances of an earlier run, which prints its seed.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// The port of the gateway on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "P", default_value_t = 0)]
    pub port: u16,
    /// Sends the client straight to the toy API: shows that the verdict can fail.
    #[arg(long, hide = true)]
    pub without_gateway: bool,
}
