//! The access log, and traces.

use std::path::PathBuf;

use crate::declare::settings;
use crate::invalid::Read;
use crate::kind::{choice, custom, full_text, optional, ratio};
use crate::tree::Node;

settings! {
    /// A line for each request.
    pub struct AccessLog from AccessLogLayer {
        /// Where a line for each request goes: `stdout`, or a file, which is appended to, and
        /// opened again on SIGHUP; without it, no requests are logged
        /// ([more](operating.md#access-log)).
        to: Option<AccessLogTarget> = optional(custom(target)),
            example "/var/log/justonce/access.log";
        /// `text` for people, `json` for machines, or `combined` as web servers have it.
        format: AccessLogFormat = choice(&[
                ("text", AccessLogFormat::Text),
                ("json", AccessLogFormat::Json),
                ("combined", AccessLogFormat::Combined),
            ]),
            default "text", example "json";
        /// What is logged of the query: `none` of it, the `names` of its parameters, or their
        /// `values` too, which may be secrets.
        query: LoggedQuery = choice(&[
                ("none", LoggedQuery::None),
                ("names", LoggedQuery::Names),
                ("values", LoggedQuery::Values),
            ]),
            default "none", example "names";
        /// Which part of the GET and HEAD requests is logged; all others always are.
        gets: f64 = ratio(), default "1.0", example "0.01";
    }
}

/// Where lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// How lines of the access log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
    /// The combined log format of web servers.
    Combined,
}

/// What is logged of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedQuery {
    /// Nothing.
    None,
    /// The names of its parameters.
    Names,
    /// All of it.
    Values,
}

fn target(node: &Node) -> Read<AccessLogTarget> {
    let text = full_text(node)?;
    Ok(match text.trim() {
        "stdout" => AccessLogTarget::Stdout,
        _ => AccessLogTarget::File(PathBuf::from(text)),
    })
}

settings! {
    /// Trace context (W3C).
    #[derive(Copy)]
    pub struct Trace from TraceLayer {
        /// What a request without a valid `traceparent` gets: `no` trace, one that is `unsampled`,
        /// or one that is `sampled`, which asks all services behind to record it.
        make: MadeTrace = choice(&[
                ("no", MadeTrace::No),
                ("unsampled", MadeTrace::Unsampled),
                ("sampled", MadeTrace::Sampled),
            ]),
            default "no", example "sampled";
    }
}

/// The trace that a request without one gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeTrace {
    /// None.
    No,
    /// One that need not be recorded.
    Unsampled,
    /// One that is to be recorded.
    Sampled,
}
