//! The statements of the store. Each step of the protocol is one of them.

use crate::schema::Schema;

/// The texts in `sql/`, with the schema's name filled in.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) begin: String,
    pub(crate) begin_from: String,
    pub(crate) write: String,
    pub(crate) complete: String,
    pub(crate) complete_within: String,
    pub(crate) checkpoint: String,
    pub(crate) checkpoint_within: String,
    pub(crate) end_doubt: String,
    pub(crate) became: String,
    pub(crate) sweep: String,
    pub(crate) forget: String,
    pub(crate) wait: String,
    pub(crate) processed: String,
    pub(crate) get: String,
    pub(crate) list: String,
    pub(crate) stats: String,
    pub(crate) size: String,
    pub(crate) ready: String,
}

/// What each connection runs first.
pub(crate) const SESSION: &str = include_str!("../sql/session.sql");

impl Statements {
    pub(crate) fn new(schema: &Schema) -> Self {
        Self {
            begin: schema.fill(include_str!("../sql/begin.sql")),
            begin_from: schema.fill(include_str!("../sql/begin_from.sql")),
            write: schema.fill(include_str!("../sql/write.sql")),
            complete: schema.fill(include_str!("../sql/complete.sql")),
            complete_within: schema.fill(include_str!("../sql/complete_within.sql")),
            checkpoint: schema.fill(include_str!("../sql/checkpoint.sql")),
            checkpoint_within: schema.fill(include_str!("../sql/checkpoint_within.sql")),
            end_doubt: schema.fill(include_str!("../sql/end_doubt.sql")),
            became: schema.fill(include_str!("../sql/became.sql")),
            sweep: schema.fill(include_str!("../sql/sweep.sql")),
            forget: schema.fill(include_str!("../sql/forget.sql")),
            wait: schema.fill(include_str!("../sql/wait.sql")),
            processed: schema.fill(include_str!("../sql/processed.sql")),
            get: schema.fill(include_str!("../sql/get.sql")),
            list: schema.fill(include_str!("../sql/list.sql")),
            stats: schema.fill(include_str!("../sql/stats.sql")),
            size: schema.fill(include_str!("../sql/size.sql")),
            ready: schema.fill(include_str!("../sql/ready.sql")),
        }
    }
}
