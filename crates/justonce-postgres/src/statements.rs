//! The statements of the store. Each step of the protocol is one of them.

use justonce_core::Outcome;
use justonce_core::codec::encode_outcome;

use crate::schema::Schema;

/// What each connection runs first.
pub(crate) const SESSION: &str = include_str!("../sql/session.sql");
/// Cleans a connection that a caller has used, before it runs `SESSION` for the next.
pub(crate) const CLEANED_SESSION: &str = include_str!("../sql/session_cleaned.sql");
/// What each connection of the store itself runs besides.
pub(crate) const STEPS_SESSION: &str = include_str!("../sql/session_steps.sql");
/// For connections whose steps do not wait for locked records.
pub(crate) const SHORT_LOCKS_SESSION: &str = include_str!("../sql/session_short_locks.sql");
/// For connections whose steps wait for locked records.
pub(crate) const LONG_LOCKS_SESSION: &str = include_str!("../sql/session_long_locks.sql");
/// For connections that only read.
pub(crate) const READS_SESSION: &str = include_str!("../sql/session_reads.sql");
/// The columns of a list.
const LIST_COLUMNS: &str = include_str!("../sql/list_columns.sql");
/// The end of each list.
const LIST_PAGE: &str = include_str!("../sql/list_page.sql");

/// Declares the statements: each is a file in `sql/`.
macro_rules! statements {
    ($($name:ident)*) => {
        /// The statements, with the schema's name filled in.
        pub(crate) struct Statements {
            $(pub(crate) $name: String,)*
        }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self {
                    $($name: text(
                        include_str!(concat!("../sql/", stringify!($name), ".sql")),
                        schema,
                    ),)*
                }
            }
        }
    };
}

statements! {
    begin begin_batch begin_read_only peek write expire_or_erase sweep watch get
    complete complete_batch complete_by_rules complete_within checkpoint checkpoint_within
    commit_status terminate_backend remember_message forget_messages
    list list_one list_unknown list_in_progress list_failed stats size ready
}

/// A statement as it is sent, without comments and indents: the cache looks up its text with every
/// use.
fn text(sql: &str, schema: &Schema) -> String {
    let sql = sql.replace("@columns@", LIST_COLUMNS).replace("@page@", LIST_PAGE);
    let sql = schema.fill(&sql.replace("@empty@", &empty_outcome()));
    let lines = sql.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join(" ")
}

/// The outcome of a released record, as a literal.
fn empty_outcome() -> String {
    let bytes = encode_outcome(&Outcome::empty());
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'::bytea")
}
