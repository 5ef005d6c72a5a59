//! Files, directories and links, whatever their names are.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;

use super::content::Content;

/// The names in a directory, and what they stand for.
pub type Names = BTreeMap<OsString, usize>;

/// Something that is not known to be durable.
#[derive(Clone, Debug)]
pub struct Pending<T> {
    /// The number of the call that asked for it.
    pub call: usize,
    /// Whether the call has returned.
    pub is_done: bool,
    /// What it changes.
    pub change: T,
}

/// A change of a file.
#[derive(Clone, Debug)]
pub enum FileChange {
    /// Bytes at a place.
    Write(u64, Arc<[u8]>),
    /// Another length.
    SetLen(u64),
}

/// A change of a directory.
#[derive(Clone, Debug)]
pub enum DirectoryChange {
    /// A name stands for something now.
    Link(OsString, usize),
    /// A name is gone.
    Unlink(OsString),
    /// What had one name has another, and whatever had that has none. Both at once.
    Rename(OsString, OsString),
}

/// What an inode is.
#[derive(Debug)]
pub enum Kind {
    /// A file: as processes see it, as it is durable, and what lies between.
    File {
        /// As processes see it.
        now: Content,
        /// As it is durable.
        durable: Content,
        /// What lies between.
        pending: Vec<Pending<FileChange>>,
    },
    /// A directory, in the same way.
    Directory {
        /// As processes see it.
        now: Names,
        /// As it is durable.
        durable: Names,
        /// What lies between.
        pending: Vec<Pending<DirectoryChange>>,
    },
    /// A symbolic link. It is made whole.
    Symlink(Vec<u8>),
}

/// Something in the file system.
#[derive(Debug)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// The directory it is in and its name there, as processes see it.
    pub parent: Option<(usize, OsString)>,
}

impl FileChange {
    /// Carries the change out.
    pub fn apply(&self, content: &mut Content) {
        match self {
            Self::Write(at, data) => content.write(*at, data),
            Self::SetLen(len) => content.set_len(*len),
        }
    }
}

impl DirectoryChange {
    /// Carries the change out.
    pub fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

/// Something that is there from the beginning.
#[derive(Clone, Debug)]
pub enum NewInode {
    /// An empty directory.
    Directory,
    /// A file.
    File(Content),
    /// A symbolic link.
    Symlink(Vec<u8>),
}

impl Inode {
    pub(super) fn durable(new: NewInode) -> Self {
        let kind = match new {
            NewInode::Directory => return Self::directory(),
            NewInode::Symlink(target) => Kind::Symlink(target),
            NewInode::File(content) => {
                Kind::File { now: content.clone(), durable: content, pending: Vec::new() }
            }
        };
        Self { kind, parent: None }
    }

    pub(super) fn file() -> Self {
        let kind =
            Kind::File { now: Content::default(), durable: Content::default(), pending: vec![] };
        Self { kind, parent: None }
    }

    pub(super) fn directory() -> Self {
        let kind =
            Kind::Directory { now: Names::new(), durable: Names::new(), pending: Vec::new() };
        Self { kind, parent: None }
    }

    /// A call has returned.
    pub(super) fn is_done(&mut self, call: usize) {
        match &mut self.kind {
            Kind::File { pending, .. } => done(pending, call),
            Kind::Directory { pending, .. } => done(pending, call),
            Kind::Symlink(_) => {}
        }
    }

    /// The calls that a sync which begins now makes durable: those that have returned.
    pub(super) fn syncable(&self) -> HashSet<usize> {
        match &self.kind {
            Kind::File { pending, .. } => finished(pending),
            Kind::Directory { pending, .. } => finished(pending),
            Kind::Symlink(_) => HashSet::new(),
        }
    }

    /// These calls are durable.
    pub(super) fn synced(&mut self, calls: &HashSet<usize>) {
        match &mut self.kind {
            Kind::File { durable, pending, .. } => {
                for change in take(pending, calls) {
                    change.apply(durable);
                }
            }
            Kind::Directory { durable, pending, .. } => {
                for change in take(pending, calls) {
                    change.apply(durable);
                }
            }
            Kind::Symlink(_) => {}
        }
    }
}

fn done<T>(pending: &mut [Pending<T>], call: usize) {
    pending.iter_mut().filter(|p| p.call == call).for_each(|p| p.is_done = true);
}

fn finished<T>(pending: &[Pending<T>]) -> HashSet<usize> {
    pending.iter().filter(|p| p.is_done).map(|p| p.call).collect()
}

fn take<T>(pending: &mut Vec<Pending<T>>, calls: &HashSet<usize>) -> Vec<T> {
    let taken = pending.extract_if(.., |p| calls.contains(&p.call));
    taken.map(|p| p.change).collect()
}
