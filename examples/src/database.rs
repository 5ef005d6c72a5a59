//! A PostgreSQL for the examples.

use justonce_testbed::{PostgresOptions, PostgresServer, ServerError};

/// The database that `DATABASE_URL` names, or a private one that ends with this value.
#[derive(Debug)]
pub struct Database {
    url: String,
    _private: Option<PostgresServer>,
}

impl Database {
    /// Finds or starts it.
    ///
    /// # Errors
    ///
    /// If none is named and none can be started.
    pub fn new() -> Result<Self, ServerError> {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            return Ok(Self { url, _private: None });
        }
        let server = PostgresServer::start(PostgresOptions::default())?;
        Ok(Self { url: server.url(), _private: Some(server) })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
