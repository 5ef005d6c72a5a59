//! Opening a store.

use std::fmt;
use std::sync::Arc;

use justonce_core::store::{BatchQueue, DamageLog};
use justonce_core::{Clock, StoreError, StoreErrorKind, StoreResult};

use crate::batch::{self, Statements};
use crate::committed::Committed;
use crate::db::Db;
use crate::endpoint::Endpoint;
use crate::migrate::{self, MigrateError};
use crate::schema::Schema;
use crate::store::{Inner, PostgresStore};
use crate::subscription::Subscription;

/// The default schema.
const DEFAULT_SCHEMA: &str = "justonce";
/// The default number of connections for steps, and for callers' transactions.
const DEFAULT_CONNECTIONS: usize = 16;

/// The settings of a [`PostgresStore`].
#[must_use = "a builder does nothing until `open`"]
pub struct PostgresBuilder {
    url: String,
    schema: String,
    connections: usize,
    transactions: usize,
    migrate: bool,
    clock: Option<Box<dyn Clock>>,
}

impl PostgresStore {
    /// Connects to a database and brings the schema up to date.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, or its schema cannot be used.
    pub async fn open(url: impl Into<String>) -> StoreResult<Self> {
        Self::builder(url).open().await
    }

    /// Starts with other settings.
    pub fn builder(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder {
            url: url.into(),
            schema: DEFAULT_SCHEMA.to_owned(),
            connections: DEFAULT_CONNECTIONS,
            transactions: DEFAULT_CONNECTIONS,
            migrate: true,
            clock: None,
        }
    }
}

impl PostgresBuilder {
    /// The schema that holds the tables: lower-case letters, digits and `_`. Default: `justonce`.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// The limit of connections for steps. Others are made when needed: four for reads, four for
    /// steps that wait for a locked record, and one that listens for the ends of operations.
    /// Default: 16.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// The limit of callers' transactions that are open at once. They have separate connections,
    /// made when needed. Default: 16.
    pub fn transactions(mut self, count: usize) -> Self {
        self.transactions = count;
        self
    }

    /// Whether the schema is brought up to date. If not, a schema that lacks steps is refused.
    /// Default: yes.
    pub fn migrate(mut self, allowed: bool) -> Self {
        self.migrate = allowed;
        self
    }

    /// Checks the address, the name of the schema and the file of trust roots, without connecting.
    ///
    /// ```
    /// use justonce_postgres::PostgresStore;
    ///
    /// assert!(PostgresStore::builder("postgres://shop@db/shop").check().is_ok());
    /// let weak = "postgres://shop@db/shop?sslmode=prefer";
    /// assert!(PostgresStore::builder(weak).check().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self) -> StoreResult<()> {
        self.parsed().map(drop)
    }

    /// A clock for tests instead of the server's. All stores on a database must have the same.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    fn parsed(&self) -> StoreResult<(Schema, Endpoint)> {
        let schema = Schema::new(&self.schema).map_err(|error| unusable(error.into()))?;
        let endpoint = Endpoint::of(&self.url).map_err(|error| unusable(error.into()))?;
        Ok((schema, endpoint))
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, or its schema cannot be used.
    pub async fn open(self) -> StoreResult<PostgresStore> {
        let (schema, endpoint) = self.parsed()?;
        if self.migrate {
            migrate::apply_to(&endpoint, &schema).await.map_err(unusable)?;
        } else {
            let missing = migrate::missing_in(&endpoint, &schema).await.map_err(unusable)?;
            if !missing.is_empty() {
                return Err(unusable(MigrateError::Missing(missing.len())));
            }
        }
        let subscription = Subscription::new(endpoint.clone(), &schema);
        let db = Db::new(&endpoint, schema, self.connections, self.transactions, self.clock)?;
        let db = Arc::new(db);
        let queue = || BatchQueue::new(Statements(Arc::clone(&db)), batch::LIMITS);
        Ok(PostgresStore(Arc::new(Inner {
            claims: queue(),
            reruns: queue(),
            completions: queue(),
            db,
            subscription,
            committed: Committed::default(),
            damage: DamageLog::default(),
        })))
    }
}

fn unusable(error: MigrateError) -> StoreError {
    let kind = match &error {
        MigrateError::Database(_) => StoreErrorKind::Unavailable,
        MigrateError::Address(_) => StoreErrorKind::Stopped,
        _ => StoreErrorKind::Protocol,
    };
    StoreError::not_applied(kind, error.to_string()).because(error)
}

impl fmt::Debug for PostgresBuilder {
    /// Without the address, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
