//! Migrations of the schema: each file in `migrations/` is applied once, in order. Later releases
//! only add, so that the previous release can run on the same schema.
//!
//! ```no_run
//! use justonce_postgres::migrate;
//!
//! # async fn example() -> Result<(), migrate::MigrateError> {
//! let url = "postgres://localhost/shop";
//! // What would be done, to read:
//! println!("{}", migrate::script(&migrate::pending(url, "justonce").await?));
//! // Do it:
//! migrate::apply(url, "justonce").await?;
//! # Ok(())
//! # }
//! ```

use std::fmt;

use tokio_postgres::Client;

use crate::address::InvalidAddress;
use crate::endpoint::Endpoint;
use crate::error::{POOLED, advised};
use crate::pooler;
use crate::schema::{InvalidSchema, Schema};

/// The oldest PostgreSQL that will do, as the server numbers itself.
const MIN_SERVER: i32 = 140_000;

/// The steps, by number and name.
const STEPS: [(i32, &str, &str); 12] = [
    (1, "records", include_str!("../migrations/0001_records.sql")),
    (2, "tools", include_str!("../migrations/0002_tools.sql")),
    (3, "begin", include_str!("../migrations/0003_begin.sql")),
    (4, "write", include_str!("../migrations/0004_write.sql")),
    (5, "sweep", include_str!("../migrations/0005_sweep.sql")),
    (6, "guard", include_str!("../migrations/0006_guard.sql")),
    (7, "first_checkpoint", include_str!("../migrations/0007_first_checkpoint.sql")),
    (8, "plain_statements", include_str!("../migrations/0008_plain_statements.sql")),
    (9, "expire", include_str!("../migrations/0009_expire.sql")),
    (10, "bounded", include_str!("../migrations/0010_bounded.sql")),
    (11, "held", include_str!("../migrations/0011_held.sql")),
    (12, "wait", include_str!("../migrations/0012_wait.sql")),
];

/// Creates the schema if it does not exist: a role without that right can be given an empty one.
const SCHEMA: &str = "\
DO $make$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '@name@') THEN
        CREATE SCHEMA @schema@;
    END IF;
END $make$;";

/// The table of applied steps.
const HISTORY: &str = "\
CREATE TABLE IF NOT EXISTS @schema@.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);";

/// One step of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number.
    pub number: i32,
    /// Its name.
    pub name: &'static str,
    /// Its statements, with the entry in the table of applied steps.
    pub sql: String,
}

/// The steps that a database does not have yet.
///
/// # Errors
///
/// If the database cannot be reached, or its schema is newer than this program.
pub async fn pending(url: &str, schema: &str) -> Result<Vec<Migration>, MigrateError> {
    let schema = Schema::new(schema)?;
    let endpoint = Endpoint::of(url)?;
    missing(&connect(&endpoint).await?, &schema).await
}

/// Applies the steps that a database does not have yet, all or none, and returns them. Concurrent
/// calls wait for each other.
///
/// # Errors
///
/// If the database refuses, or its schema is newer than this program.
pub async fn apply(url: &str, schema: &str) -> Result<Vec<Migration>, MigrateError> {
    let schema = Schema::new(schema)?;
    let endpoint = Endpoint::of(url)?;
    apply_to(&endpoint, &schema).await
}

/// Steps as one text, to read or to run by hand.
#[must_use]
pub fn script(migrations: &[Migration]) -> String {
    let mut text = String::new();
    for Migration { number, name, sql } in migrations {
        text.push_str(&format!("-- Step {number}: {name}\n\n{sql}\n"));
    }
    text
}

pub(crate) async fn missing_in(
    endpoint: &Endpoint,
    schema: &Schema,
) -> Result<Vec<Migration>, MigrateError> {
    missing(&connect(endpoint).await?, schema).await
}

pub(crate) async fn apply_to(
    endpoint: &Endpoint,
    schema: &Schema,
) -> Result<Vec<Migration>, MigrateError> {
    let mut client = connect(endpoint).await?;
    if missing(&client, schema).await?.is_empty() {
        return Ok(Vec::new());
    }
    let transaction = client.transaction().await?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('justonce migrate ' || $1, 0))";
    transaction.execute(lock, &[&schema.name()]).await?;
    // A concurrent call may have applied them.
    let steps = missing(transaction.client(), schema).await?;
    for step in &steps {
        transaction.batch_execute(&step.sql).await?;
    }
    transaction.commit().await?;
    Ok(steps)
}

async fn connect(endpoint: &Endpoint) -> Result<Client, MigrateError> {
    let client = pooler::connect(endpoint).await?;
    // Behind such a pooler, prepared statements would be lost.
    if pooler::is_pooled(endpoint, &client).await? {
        return Err(MigrateError::Pooled);
    }
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::integer, \
             current_setting('server_encoding')",
            &[],
        )
        .await?;
    check(row.try_get(0)?, row.try_get(1)?)?;
    Ok(client)
}

/// Refuses servers that are too old, and databases that cannot hold every key.
fn check(version: i32, encoding: String) -> Result<(), MigrateError> {
    if version < MIN_SERVER {
        return Err(MigrateError::OldServer(version / 10_000));
    }
    if encoding != "UTF8" {
        return Err(MigrateError::Encoding(encoding));
    }
    Ok(())
}

async fn missing(client: &Client, schema: &Schema) -> Result<Vec<Migration>, MigrateError> {
    // The catalogue is queried: names that are resolved once are cached within a transaction.
    let there = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 \
                 AND tablename = 'migrations')";
    let mut newest = 0;
    if client.query_one(there, &[&schema.name()]).await?.try_get(0)? {
        let last = schema.fill("SELECT coalesce(max(number), 0) FROM @schema@.migrations");
        newest = client.query_one(&last, &[]).await?.try_get(0)?;
    }
    let known = STEPS.map(|(number, ..)| number).into_iter().max().unwrap_or_default();
    if newest > known {
        return Err(MigrateError::Newer { found: newest, known });
    }
    let steps = STEPS.into_iter().filter(|(number, ..)| *number > newest);
    let step =
        |(number, name, sql)| Migration { number, name, sql: whole(number, name, sql, schema) };
    Ok(steps.map(step).collect())
}

/// The whole text of a step, complete also if it is run by hand.
fn whole(number: i32, name: &str, sql: &str, schema: &Schema) -> String {
    let first = match number {
        1 => format!("{}\n\n{HISTORY}\n\n", SCHEMA.replace("@name@", schema.name())),
        _ => String::new(),
    };
    let note =
        format!("INSERT INTO @schema@.migrations (number, name) VALUES ({number}, '{name}');");
    schema.fill(&format!("{first}{sql}\n{note}\n"))
}

/// Why a schema could not be brought up to date.
#[derive(Debug)]
#[non_exhaustive]
pub enum MigrateError {
    /// The schema was made by a newer release.
    Newer {
        /// The last step that the database has.
        found: i32,
        /// The last step that this program knows.
        known: i32,
    },
    /// The schema lacks steps, and applying them was not allowed.
    Missing(usize),
    /// The server is older than PostgreSQL 14.
    OldServer(i32),
    /// The database is not in UTF-8.
    Encoding(String),
    /// A pooler gives each transaction another connection to the server.
    Pooled,
    /// The address cannot be used.
    Address(InvalidAddress),
    /// A schema cannot have this name.
    Schema(InvalidSchema),
    /// The database refused, or could not be reached.
    Database(tokio_postgres::Error),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found, known } => write!(
                f,
                "the schema is newer than this program: it has step {found}, and this release \
                 knows {known}. Use the release that made it, or a newer one"
            ),
            Self::Missing(count) => write!(
                f,
                "the schema lacks {count} steps, and this program was told not to apply them: \
                 `justonce migrate` does"
            ),
            Self::OldServer(version) => {
                write!(f, "the server is PostgreSQL {version}: 14 or later is needed")
            }
            Self::Encoding(encoding) => {
                write!(f, "the database is in {encoding}: it must be in UTF8")
            }
            Self::Pooled => f.write_str(POOLED),
            Self::Address(error) => error.fmt(f),
            Self::Schema(error) => error.fmt(f),
            Self::Database(error) => f.write_str(&advised(error)),
        }
    }
}

impl std::error::Error for MigrateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            Self::Address(error) => Some(error),
            Self::Schema(error) => Some(error),
            _ => None,
        }
    }
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<InvalidAddress> for MigrateError {
    fn from(error: InvalidAddress) -> Self {
        Self::Address(error)
    }
}

impl From<InvalidSchema> for MigrateError {
    fn from(error: InvalidSchema) -> Self {
        Self::Schema(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused() {
        let checked = |version: i32, encoding: &str| {
            check(version, encoding.to_owned()).map_err(|error| error.to_string())
        };
        for good in [140_000, 140_023, 150_018, 180_004] {
            assert_eq!(checked(good, "UTF8"), Ok(()));
        }
        let old = checked(130_023, "UTF8").unwrap_err();
        assert_eq!(old, "the server is PostgreSQL 13: 14 or later is needed");
        let encoding = checked(140_000, "LATIN1").unwrap_err();
        assert_eq!(encoding, "the database is in LATIN1: it must be in UTF8");
    }

    #[test]
    fn released_steps_never_change() {
        // FNV-1a of each file, comments included. A change is a step of its own.
        let sum = |sql: &str| {
            sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        let released: [u64; STEPS.len()] = [
            0x3a33_b708_1784_938b,
            0xe9e2_d9c3_aa08_8e29,
            0x968c_8815_7af7_c7c2,
            0x1313_b37e_9771_570a,
            0x1631_6c24_ca24_6e8f,
            0x9543_0192_845f_b681,
            0xf183_7f7c_939e_d33d,
            0x1009_42f1_0dfb_5d85,
            0x9ed8_a76e_2255_71c2,
            0xbdcd_0707_abdf_2054,
            0xf5b4_f368_c8c4_1476,
            0x42a7_f66b_f1c7_3f06,
        ];
        for (expected, (number, name, sql)) in released.into_iter().zip(STEPS) {
            assert_eq!(sum(sql), expected, "step {number}, {name}: add a step instead");
        }
    }
}
