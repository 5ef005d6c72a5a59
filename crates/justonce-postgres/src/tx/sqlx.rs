//! Transactions of sqlx.

use sqlx::{AssertSqlSafe, Error, PgConnection, Postgres, Transaction};

use super::driver::{CallersTransaction, Param};

impl CallersTransaction for PgConnection {
    type Error = Error;

    async fn query_text(&mut self, sql: &str, params: &[Param<'_>]) -> Result<String, Error> {
        // A statement of the store, with nothing of a caller in it.
        let mut query = sqlx::query_scalar(AssertSqlSafe(sql));
        for param in params {
            query = match *param {
                Param::Bytes(bytes) => query.bind(bytes),
                Param::Text(text) => query.bind(text),
                Param::Number(number) => query.bind(number),
                Param::Maybe(number) => query.bind(number),
            };
        }
        query.fetch_one(self).await
    }
}

impl CallersTransaction for Transaction<'_, Postgres> {
    type Error = Error;

    async fn query_text(&mut self, sql: &str, params: &[Param<'_>]) -> Result<String, Error> {
        PgConnection::query_text(self, sql, params).await
    }
}
