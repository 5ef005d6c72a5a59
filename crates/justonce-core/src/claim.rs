//! The right to execute, held by one owner.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// The longest name of an owner, in bytes.
pub const MAX_OWNER_BYTES: usize = 64;
/// The longest name of a checkpoint, in bytes.
pub const MAX_CHECKPOINT_NAME_BYTES: usize = 128;
/// The most data one checkpoint may hold, in bytes.
pub const MAX_CHECKPOINT_BYTES: usize = 256 * 1024;

/// A number that grows with every claim of the same record; a write with an old fence is refused.
///
/// Stores mint fences so that none is ever given twice, also not after a release or a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// Older than every fence that is ever given.
    pub const NONE: Self = Self(0);

    /// A fence by its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, to hand to systems that check it.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next fence.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one call of begin, so that a begin whose reply was lost can be repeated: the store
/// answers the same token with the same claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

/// Who holds a claim, in words an operator understands: a host, a process, a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner by name. Characters that do not show are replaced and the rest is cut at
    /// [`MAX_OWNER_BYTES`]: it is for reading only.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(readable(name, MAX_OWNER_BYTES)))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text cut to `limit` bytes at a character's boundary, control characters replaced.
pub(crate) fn readable(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for c in text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }) {
        if shown.len() + c.len_utf8() > limit {
            break;
        }
        shown.push(c);
    }
    shown
}

/// A named checkpoint with its data, inside a claim.
///
/// ```
/// use justonce_core::Checkpoint;
///
/// let charged = Checkpoint::new("charged", "payment 17")?;
/// assert_eq!(charged.name(), "charged");
/// # Ok::<(), justonce_core::CheckpointError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Checkpoint(Arc<Point>);

/// Apart: most records have none, and each would keep room for it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Point {
    name: Box<str>,
    data: Bytes,
    number: u32,
}

impl Checkpoint {
    /// A checkpoint.
    ///
    /// # Errors
    ///
    /// If the name is empty or too long, or the data too large.
    pub fn new(name: &str, data: impl Into<Bytes>) -> Result<Self, CheckpointError> {
        let data = data.into();
        if name.is_empty() || name.len() > MAX_CHECKPOINT_NAME_BYTES {
            return Err(CheckpointError::Name(name.len()));
        }
        if data.len() > MAX_CHECKPOINT_BYTES {
            return Err(CheckpointError::Data(data.len()));
        }
        Ok(Self(Arc::new(Point { name: name.into(), data, number: 0 })))
    }

    /// The same as the `number`-th of its claim: a late copy of an earlier one changes nothing.
    /// Points that are all numbered 0 replace each other as they come.
    #[must_use]
    pub fn numbered(mut self, number: u32) -> Self {
        Arc::make_mut(&mut self.0).number = number;
        self
    }

    /// Its number within its claim; 0 for one that was handed over, or has no number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.0.data
    }
}

impl fmt::Debug for Checkpoint {
    /// Shows the size, not the data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({:?}, {} bytes)", self.name(), self.data().len())
    }
}

/// Why a checkpoint was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The name has this many bytes; 1 to [`MAX_CHECKPOINT_NAME_BYTES`] are allowed.
    #[error("the checkpoint's name has {0} bytes: use 1 to {max}", max = MAX_CHECKPOINT_NAME_BYTES)]
    Name(usize),
    /// The data has this many bytes, more than [`MAX_CHECKPOINT_BYTES`].
    #[error(
        "the checkpoint's data has {0} bytes, at most {max} are kept: store large data elsewhere \
         and keep its address",
        max = MAX_CHECKPOINT_BYTES
    )]
    Data(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_readable_and_bounded() {
        assert_eq!(Owner::new("gw-1\n").as_str(), "gw-1\u{fffd}");
        assert_eq!(Owner::new(&"é".repeat(100)).as_str().len(), MAX_OWNER_BYTES);
    }

    #[test]
    fn checkpoints_are_bounded() {
        assert_eq!(Checkpoint::new("", "").unwrap_err(), CheckpointError::Name(0));
        let large = Checkpoint::new("a", vec![0; MAX_CHECKPOINT_BYTES + 1]);
        assert_eq!(large.unwrap_err(), CheckpointError::Data(MAX_CHECKPOINT_BYTES + 1));
    }
}
