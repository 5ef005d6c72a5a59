//! What the command line says about the configuration.

use std::path::PathBuf;

use clap::Args;

/// The flags of the commands that read a configuration. Each is stronger than its `JUSTONCE_…`
/// variable, and that is stronger than the file.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The configuration file [variable: JUSTONCE_CONFIG]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// Where the API is; more than one share the load
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,

    /// Where records are kept [default: file:./justonce-data]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// Where operators connect, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,

    /// Any other setting: `--set defaults.retention=72h`
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}
