//! Opening a store on PostgreSQL.

use std::fmt;
use std::sync::Arc;

use justonce_core::store::{DamageLog, Lanes};
use justonce_core::{Clock, RecordId, StoreError, StoreErrorKind, StoreResult};

use crate::db::Db;
use crate::endpoint::Endpoint;
use crate::listener::Listener;
use crate::migrate::{self, MigrateError};
use crate::schema::Schema;
use crate::together::{self, Statements};
use crate::tx::Committed;

/// The schema, unless told otherwise.
const DEFAULT_SCHEMA: &str = "justonce";
/// How many connections of each kind are kept, unless told otherwise.
const DEFAULT_CONNECTIONS: usize = 16;

/// A store on PostgreSQL, for any number of processes at once.
///
/// ```no_run
/// use justonce_postgres::PostgresStore;
///
/// # async fn example() -> Result<(), justonce_core::StoreError> {
/// // The default.
/// let store = PostgresStore::open("postgres://shop@db.internal/shop").await?;
///
/// // Customised.
/// let store = PostgresStore::builder("postgres://shop@db.internal/shop")
///     .schema("payments_once")
///     .connections(32)
///     .migrate(false)
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct PostgresStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) db: Arc<Db>,
    pub(crate) listener: Listener,
    pub(crate) committed: Committed,
    pub(crate) claims: Arc<Lanes<Statements>>,
    /// Claims under `rerun`, which wait for no disk, nor for others that do.
    pub(crate) reruns: Arc<Lanes<Statements>>,
    pub(crate) completions: Arc<Lanes<Statements>>,
    /// Records that could not be read.
    pub(crate) damage: DamageLog,
}

impl Inner {
    /// A record could not be read.
    pub(crate) fn note_damage(&self, id: &RecordId, why: &dyn fmt::Display) {
        if self.damage.note(*id) {
            tracing::error!(record = %id, %why, "a record is damaged");
        }
    }
}

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

    /// How many connections steps have at most. Besides, each made when it is needed: four for what
    /// only reads, four for steps that wait for a record which another transaction has locked, and
    /// one that listens for the ends of operations. Default: 16.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// How many of the callers' transactions may be open at once; they have connections of their
    /// own, made when they are needed. Default: 16.
    pub fn transactions(mut self, count: usize) -> Self {
        self.transactions = count;
        self
    }

    /// Whether the schema is brought up to date. If not, a schema that lacks something is
    /// refused. Default: yes.
    pub fn migrate(mut self, allowed: bool) -> Self {
        self.migrate = allowed;
        self
    }

    /// Whether the address and the name of the schema can be used, and the file of authorities be
    /// read. Nothing is connected to.
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
        Schema::new(&self.schema).map_err(|error| unusable(error.into()))?;
        Endpoint::of(&self.url).map_err(|error| unusable(error.into()))?;
        Ok(())
    }

    /// Another clock, for tests: its time is used instead of the server's. Two stores on one
    /// database must not differ in this.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, or its schema cannot be used.
    pub async fn open(self) -> StoreResult<PostgresStore> {
        let schema = Schema::new(&self.schema).map_err(|error| unusable(error.into()))?;
        let endpoint = Endpoint::of(&self.url).map_err(|error| unusable(error.into()))?;
        if self.migrate {
            migrate::apply_to(&endpoint, &schema).await.map_err(unusable)?;
        } else {
            let missing = migrate::missing_in(&endpoint, &schema).await.map_err(unusable)?;
            if !missing.is_empty() {
                return Err(unusable(MigrateError::Missing(missing.len())));
            }
        }
        let listener = Listener::new(endpoint.clone(), &schema);
        let db = Db::new(&endpoint, schema, self.connections, self.transactions, self.clock)?;
        let db = Arc::new(db);
        let lanes = || Lanes::new(Statements(Arc::clone(&db)), together::LIMITS);
        let (claims, reruns, completions) = (lanes(), lanes(), lanes());
        Ok(PostgresStore(Arc::new(Inner {
            db,
            listener,
            committed: Committed::default(),
            claims,
            reruns,
            completions,
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

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.0.db.schema).finish_non_exhaustive()
    }
}

impl fmt::Debug for PostgresBuilder {
    /// The address may hold a password, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
