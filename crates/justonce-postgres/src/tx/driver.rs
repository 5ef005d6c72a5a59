//! Transactions of callers, for any driver.

use std::future::Future;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param<'a> {
    /// `bytea`.
    Bytes(&'a [u8]),
    /// `text`.
    Text(&'a str),
    /// `bigint`.
    Number(i64),
    /// `bigint`, or NULL.
    Maybe(Option<i64>),
}

/// A transaction of the caller.
///
/// It is implemented for the transactions of tokio-postgres and deadpool-postgres, and with the
/// feature `sqlx` for the transactions and connections of sqlx.
/// For another driver it takes a few lines: bind the parameters by their types, fetch one row,
/// return its first column.
pub trait CallersTransaction {
    /// The error of the driver.
    type Error;

    /// Runs a statement that gives one row with one column of text.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn query_text(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<String, Self::Error>> + Send;
}

impl Param<'_> {
    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text,
            Self::Number(number) => number,
            Self::Maybe(number) => number,
        }
    }
}

fn bound<'a>(params: &'a [Param<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(Param::as_sql).collect()
}

fn first_column(row: &Row) -> Result<String, Error> {
    row.try_get(0)
}

impl CallersTransaction for tokio_postgres::Transaction<'_> {
    type Error = Error;

    async fn query_text(&mut self, sql: &str, params: &[Param<'_>]) -> Result<String, Error> {
        first_column(&self.query_one(sql, &bound(params)).await?)
    }
}

impl CallersTransaction for deadpool_postgres::Transaction<'_> {
    type Error = Error;

    async fn query_text(&mut self, sql: &str, params: &[Param<'_>]) -> Result<String, Error> {
        let statement = self.prepare_cached(sql).await?;
        first_column(&self.query_one(&statement, &bound(params)).await?)
    }
}

impl CallersTransaction for super::Tx {
    type Error = Error;

    async fn query_text(&mut self, sql: &str, params: &[Param<'_>]) -> Result<String, Error> {
        let statement = self.prepare_cached(sql).await?;
        first_column(&self.query_one(&statement, &bound(params)).await?)
    }
}
