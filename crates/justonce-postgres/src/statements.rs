//! The statements of the store. Each step of the protocol is one of them.

use justonce_core::Outcome;
use justonce_core::codec::encode_outcome;

use crate::schema::Schema;

/// The texts in `sql/`, with the schema's name filled in.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) begin: String,
    pub(crate) claim: String,
    pub(crate) claim_together: String,
    pub(crate) peek: String,
    pub(crate) write: String,
    pub(crate) complete: String,
    pub(crate) complete_any: String,
    pub(crate) complete_together: String,
    pub(crate) complete_within: String,
    pub(crate) checkpoint: String,
    pub(crate) checkpoint_within: String,
    pub(crate) end_doubt: String,
    pub(crate) became: String,
    pub(crate) give_up: String,
    pub(crate) sweep: String,
    pub(crate) forget: String,
    pub(crate) wait: String,
    pub(crate) processed: String,
    pub(crate) get: String,
    pub(crate) list: String,
    pub(crate) list_unknown: String,
    pub(crate) list_in_progress: String,
    pub(crate) list_failed: String,
    pub(crate) stats: String,
    pub(crate) size: String,
    pub(crate) ready: String,
}

/// What each connection runs first.
pub(crate) const SESSION: &str = include_str!("../sql/session.sql");
/// What a connection runs that one caller has used, before it runs the above for another.
pub(crate) const CLEANED_SESSION: &str = include_str!("../sql/session_cleaned.sql");
/// What each connection for our own statements runs besides.
pub(crate) const STEPS_SESSION: &str = include_str!("../sql/session_steps.sql");

/// What each connection runs besides on which a step waits for nobody.
pub(crate) const PROMPT_SESSION: &str = include_str!("../sql/session_prompt.sql");
/// What each connection runs besides on which a step waits for a record.
pub(crate) const PATIENT_SESSION: &str = include_str!("../sql/session_patient.sql");
/// What each connection runs besides that only reads.
pub(crate) const READS_SESSION: &str = include_str!("../sql/session_reads.sql");
/// The columns of a listing.
const LIST_COLUMNS: &str = include_str!("../sql/list_columns.sql");

impl Statements {
    pub(crate) fn new(schema: &Schema) -> Self {
        let empty = empty_outcome();
        let text = |sql: &str| plain(&schema.fill(&sql.replace("@empty@", &empty)));
        let listing = |sql: &str| text(&sql.replace("@columns@", LIST_COLUMNS));
        Self {
            begin: text(include_str!("../sql/begin.sql")),
            claim: text(include_str!("../sql/claim.sql")),
            claim_together: text(include_str!("../sql/claim_together.sql")),
            peek: text(include_str!("../sql/peek.sql")),
            write: text(include_str!("../sql/write.sql")),
            complete: text(include_str!("../sql/complete.sql")),
            complete_any: text(include_str!("../sql/complete_any.sql")),
            complete_together: text(include_str!("../sql/complete_together.sql")),
            complete_within: text(include_str!("../sql/complete_within.sql")),
            checkpoint: text(include_str!("../sql/checkpoint.sql")),
            checkpoint_within: text(include_str!("../sql/checkpoint_within.sql")),
            end_doubt: text(include_str!("../sql/end_doubt.sql")),
            became: text(include_str!("../sql/became.sql")),
            give_up: text(include_str!("../sql/give_up.sql")),
            sweep: text(include_str!("../sql/sweep.sql")),
            forget: text(include_str!("../sql/forget.sql")),
            wait: text(include_str!("../sql/wait.sql")),
            processed: text(include_str!("../sql/processed.sql")),
            get: text(include_str!("../sql/get.sql")),
            list: listing(include_str!("../sql/list.sql")),
            list_unknown: listing(include_str!("../sql/list_unknown.sql")),
            list_in_progress: listing(include_str!("../sql/list_in_progress.sql")),
            list_failed: listing(include_str!("../sql/list_failed.sql")),
            stats: text(include_str!("../sql/stats.sql")),
            size: text(include_str!("../sql/size.sql")),
            ready: text(include_str!("../sql/ready.sql")),
        }
    }
}

/// What a release leaves as its outcome, as a literal.
fn empty_outcome() -> String {
    let bytes = encode_outcome(&Outcome::empty());
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'::bytea")
}

/// A statement without its comments and indents: its text is looked up with every use.
fn plain(sql: &str) -> String {
    let lines = sql.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join(" ")
}
