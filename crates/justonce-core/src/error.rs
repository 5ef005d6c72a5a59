//! Surprises. Every expected answer is a value; an error says whether the step happened.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::record_id::RecordId;

/// Whether a step whose store call failed took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Certainly not.
    NotApplied,
    /// Perhaps.
    MayHaveBeenApplied,
}

/// What went wrong in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached or does not answer now; it may later.
    Unavailable,
    /// The store took longer than allowed.
    TimedOut,
    /// The store has stopped accepting writes, after an I/O error or a full disk. It needs an
    /// operator.
    Stopped,
    /// The store has reached one of its limits.
    Full,
    /// A record could not be read: damaged, or written by a program of another version.
    Damaged,
    /// The store answered with something that does not belong to the protocol.
    Protocol,
}

/// A surprise in a store: what went wrong, and whether the step took place.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    effect: Effect,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What store calls return.
pub type StoreResult<T> = Result<T, StoreError>;

impl StoreError {
    /// An error of a step that certainly did not take place.
    #[must_use]
    pub fn not_applied(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, effect: Effect::NotApplied, message: message.into(), source: None }
    }

    /// An error of a step that may have taken place.
    #[must_use]
    pub fn maybe_applied(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, effect: Effect::MayHaveBeenApplied, message: message.into(), source: None }
    }

    /// The same with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the step took place.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the same step may succeed later without anybody's help.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::TimedOut)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::NotApplied => "the step was not applied",
            Effect::MayHaveBeenApplied => "the step may have been applied",
        };
        write!(f, "{} ({effect})", self.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// A stored record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// The record's name.
    pub id: RecordId,
    /// What is wrong with it.
    pub damage: Damage,
}

/// What is wrong with a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// It is too short to be a record.
    Truncated,
    /// It does not begin as our records do.
    Foreign,
    /// It was written in this format version, which this program does not know.
    Version(u8),
    /// It has flags that this program does not know.
    Flags(u8),
    /// Its checksum does not match: bytes changed, or it belongs to another record.
    Checksum,
    /// It cannot be decompressed.
    Compression,
    /// It does not hold what its version says it holds.
    Content,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match self.damage {
            Damage::Truncated => write!(f, "record {id} is cut short"),
            Damage::Foreign => write!(f, "record {id} was not written by Justonce"),
            Damage::Version(version) => write!(
                f,
                "record {id} has format version {version}, which this release cannot read: use the \
                 release that wrote it, or a newer one"
            ),
            Damage::Flags(flags) => write!(
                f,
                "record {id} has flags {flags:#04x}, which this release cannot read: use the \
                 release that wrote it, or a newer one"
            ),
            Damage::Checksum => write!(f, "record {id} has a wrong checksum"),
            Damage::Compression => write!(f, "record {id} cannot be decompressed"),
            Damage::Content => write!(f, "record {id} holds values that are not allowed"),
        }
    }
}

impl Error for DamagedRecord {}

impl From<DamagedRecord> for StoreError {
    fn from(damaged: DamagedRecord) -> Self {
        Self::not_applied(StoreErrorKind::Damaged, damaged.to_string()).because(damaged)
    }
}
