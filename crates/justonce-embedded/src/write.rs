//! A decision on its way to disk: what one record changes there, and the rows that go with it.

use justonce_core::{RecordId, StateName, Timestamp};

use crate::rows::RowWrite;

/// The name of a row of the expiry index: the end of the retention, then the batch's number.
pub(crate) type ExpiryRow = [u8; 16];

/// A decision on its way to disk.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) id: RecordId,
    /// The change it carries out; zero for writes that are no record's last change.
    pub(crate) change: u64,
    pub(crate) op: Option<DiskOp>,
    /// What it replaces and adds on disk.
    pub(crate) replaces: DiskState,
    pub(crate) adds: DiskState,
    /// When what it adds may be swept.
    pub(crate) expires_at: Option<Timestamp>,
    /// The caller's own rows that go with it.
    pub(crate) rows: Vec<RowWrite>,
    /// The number under which they are kept until the engine has them.
    pub(crate) rows_change: u64,
    /// About how much memory it takes in the queue; zero if it is not counted there.
    pub(crate) queued_bytes: u64,
}

impl Write {
    /// A batch of its own right, with nothing in it: it reserves fences.
    pub(crate) fn empty() -> Self {
        Self {
            id: RecordId::from_bytes([0; 32]),
            change: 0,
            op: None,
            replaces: DiskState::Absent,
            adds: DiskState::Absent,
            expires_at: None,
            rows: Vec::new(),
            rows_change: 0,
            queued_bytes: 0,
        }
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let record = match &self.op {
            Some(DiskOp::Put(bytes)) => bytes.len(),
            _ => 0,
        };
        let of = |row: &RowWrite| {
            size_of::<RowWrite>()
                + row.name.as_bytes().len()
                + row.value.as_ref().map_or(0, Vec::len)
        };
        let rows: usize = self.rows.iter().map(of).sum();
        (size_of::<Self>() + record + rows) as u64
    }

    /// A row of the expiry index has been worked through.
    pub(crate) fn swept(row: ExpiryRow) -> Self {
        Self { op: Some(DiskOp::Swept(row)), ..Self::empty() }
    }
}

/// One change to a record on disk, or to the index.
#[derive(Debug)]
pub(crate) enum DiskOp {
    Put(Vec<u8>),
    Remove,
    /// A row of the expiry index has been worked through.
    Swept(ExpiryRow),
}

/// What the disk has of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskState {
    Absent,
    /// An unsettled record.
    Live,
    /// A settled record or a tombstone.
    Done(StateName, u32),
}
