//! Inspects a store's directory before the storage engine opens it, and changes nothing.
//!
//! The engine believes its files: a keyspace without its `current` file it takes for new, and
//! removes what is left of it. So everything that must be there is compared first:
//!
//! 1. Each keyspace's `current` file names its version file and has its checksum; that one lists
//!    all tables and blob files with theirs ([`version`]).
//! 2. The store's own [`manifest`] lists the keyspaces, and the length and the last bytes of files
//!    that were checked before. Files that it does not list are read whole, once.
//! 3. The engine opens a copy: small files and journals copied, the rest linked ([`trial`]). What
//!    it finds there must, with the write-ahead log, be all that was acknowledged. A batch at the
//!    end of a journal that a power cut has torn is cut off first ([`torn`]).

mod manifest;
mod torn;
mod trial;
mod verify;
mod version;

pub(crate) use manifest::{Manifest, ManifestWriter, keyspaces, whole_sum};
pub(crate) use trial::{Tried, copy_file, try_in};
pub(crate) use verify::{BACKUP_LIST, Found, RESTORING, complete, inspect, summed, tidy};
pub(crate) use version::{CURRENT, pointed_to};
