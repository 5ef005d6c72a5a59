//! Backups of a store while it runs, and stores that are restored from them.
//!
//! 1. **Frozen.** Everything acknowledged is brought into the storage engine, and the applier
//!    pauses at the end of a batch while the engine's files are linked and its journals copied
//!    (`frozen`). Callers go on: the write-ahead log takes what they decide meanwhile.
//! 2. **Sent.** The frozen files go out as one stream (`archive`), to whoever reads it: a
//!    directory on this machine, or the client of a gateway's admin API.
//! 3. **Received.** The other end writes a directory (`unpack`): the files, and last the list
//!    with their checksums (`list`). Without the list it is no backup.
//! 4. **Restored.** The files are compared with the list while they are copied. The last step is
//!    one rename: before it, nothing that is there opens as a store (`restore`).
//!
//! A restored store takes operations that it may have lost for unknown, where their keys carry a
//! date: see `docs/guarantees.md`, *After a restore*.

mod archive;
mod error;
mod frozen;
mod list;
mod progress;
mod restore;
mod take;
mod unpack;
mod verify;

pub use error::BackupError;
pub use progress::Progress;
pub use restore::{RestoreOptions, Restored, restore};
pub use take::{Backup, BackupReport, Backups};
pub use unpack::Unpacker;
pub use verify::{StoreReport, check};
