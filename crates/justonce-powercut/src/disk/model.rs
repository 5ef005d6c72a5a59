//! Goes through a recording, and knows at each point what is durable.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use super::inode::{DirectoryChange, FileChange, Inode, Kind, Names, NewInode, Pending};
use crate::calls::{Call, Event, PathAt, Recording};
use crate::mutants::Dropped;

/// The inode of the directory in which the store's is made.
pub const ROOT: usize = 0;

/// The model: everything below one directory, which itself is durable.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    inodes: Vec<Inode>,
    open: HashMap<i32, OpenFile>,
    /// The syncs under way: what each makes durable.
    syncs: HashMap<usize, (usize, HashSet<usize>)>,
    /// The syncs that are left out.
    dropped: Option<Dropped>,
    /// Calls of the processes before this one.
    earlier_calls: usize,
}

#[derive(Clone, Debug)]
struct OpenFile {
    inode: usize,
    /// Where the next write goes. Nothing is opened twice by `dup` and written through both.
    at: u64,
    appends: bool,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(root: &Path, dropped: Option<Dropped>) -> Self {
        Self {
            root: root.to_owned(),
            inodes: vec![Inode::directory()],
            open: HashMap::new(),
            syncs: HashMap::new(),
            dropped,
            earlier_calls: 0,
        }
    }

    /// Adds something that is durable; its directory is there. Returns its number.
    ///
    /// # Errors
    ///
    /// If the directory is none.
    pub fn add_durable(&mut self, at: usize, name: OsString, new: NewInode) -> Result<usize> {
        let inode = Inode::durable(new);
        let number = self.make(usize::MAX, at, name, inode)?;
        if let Some(folder) = self.inodes.get_mut(at) {
            folder.synced(&HashSet::from([usize::MAX]));
        }
        Ok(number)
    }

    /// The directory in which the store's is made.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the next write to an open file goes.
    #[must_use]
    pub fn position(&self, fd: i32) -> Option<u64> {
        let open = self.open.get(&fd)?;
        if open.appends { self.len(open.inode).ok() } else { Some(open.at) }
    }

    /// The real path of what a call names, if that lies below the root.
    #[must_use]
    pub fn real_path(&self, path: &PathAt) -> Option<PathBuf> {
        let (folder, name) = self.resolve(path).ok()??;
        Some(self.root.join(self.path_of(folder)).join(name))
    }

    /// An inode.
    #[must_use]
    pub fn inode(&self, number: usize) -> Option<&Inode> {
        self.inodes.get(number)
    }

    /// The path of an inode as processes see it, below the root.
    #[must_use]
    pub fn path_of(&self, inode: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut at = inode;
        while let Some((parent, name)) = self.inodes.get(at).and_then(|i| i.parent.as_ref()) {
            names.push(name);
            at = *parent;
        }
        names.into_iter().rev().collect()
    }

    /// What an open file or directory is, if it lies below the root.
    #[must_use]
    pub fn open_inode(&self, fd: i32) -> Option<usize> {
        self.open.get(&fd).map(|open| open.inode)
    }

    /// The process has ended, and another one begins. What it had not synced is still there.
    pub fn next_process(&mut self, ended: &Recording) {
        self.open.clear();
        self.syncs.clear();
        for inode in &mut self.inodes {
            // Whether these have happened, the recording knows from what was found then.
            (0..ended.calls.len()).for_each(|call| inode.is_done(self.earlier_calls + call));
        }
        self.earlier_calls += ended.calls.len();
    }

    /// Carries one event out.
    ///
    /// # Errors
    ///
    /// If the model does not know what the call leaves.
    pub fn apply(&mut self, recording: &Recording, event: Event) -> Result<()> {
        let (Event::Begins(place) | Event::Ends(place)) = event;
        let recorded = recording.call(event).context("there is no such call")?;
        let number = self.earlier_calls + place;
        match event {
            Event::Begins(_) => self.begins(number, &recorded.call, recorded.result),
            Event::Ends(_) => self.ends(number, &recorded.call, recorded.result),
        }
        .with_context(|| format!("call {number}: {:.200}", format!("{:?}", recorded.call)))
    }

    fn begins(&mut self, number: usize, call: &Call, result: Option<i64>) -> Result<()> {
        match call {
            Call::Open { path, create, truncate, .. } => {
                if let Some((folder, name)) = self.resolve(path)? {
                    let inode = match self.names(folder)?.get(&name) {
                        Some(inode) => *inode,
                        None if *create => self.make(number, folder, name, Inode::file())?,
                        None => bail!("{} is not there", name.display()),
                    };
                    if *truncate {
                        self.change_file(number, inode, FileChange::SetLen(0))?;
                    }
                }
            }
            Call::Write { fd, at, data } => {
                let Some(open) = self.open.get(fd).cloned() else { return Ok(()) };
                let at = match at {
                    Some(at) => *at,
                    None if open.appends => self.len(open.inode)?,
                    None => open.at,
                };
                self.change_file(number, open.inode, FileChange::Write(at, Arc::clone(data)))?;
            }
            Call::SetLen { fd, len } => {
                if let Some(open) = self.open.get(fd) {
                    self.change_file(number, open.inode, FileChange::SetLen(*len))?;
                }
            }
            Call::Sync { fd } => {
                if let Some(inode) = self.open_inode(*fd)
                    && !self.drops_sync_of(inode)
                {
                    let calls = self.inodes.get(inode).map(Inode::syncable).unwrap_or_default();
                    self.syncs.insert(number, (inode, calls));
                }
            }
            Call::Close { fd } => drop(self.open.remove(fd)),
            Call::Rename { from, to } => self.rename(number, from, to)?,
            Call::Unlink { path } => {
                if let Some((folder, name)) = self.resolve(path)? {
                    self.change_names(number, folder, DirectoryChange::Unlink(name))?;
                }
            }
            Call::MakeDirectory { path } => {
                if let Some((folder, name)) = self.resolve(path)? {
                    self.make(number, folder, name, Inode::directory())?;
                }
            }
            Call::Symlink { target, path } => {
                if let Some((folder, name)) = self.resolve(path)? {
                    let kind = Kind::Symlink(target.clone());
                    self.make(number, folder, name, Inode { kind, parent: None })?;
                }
            }
            Call::Seek { .. } | Call::Duplicate { .. } => {}
            Call::Other { name, fds, paths } => {
                let touches = fds.iter().any(|fd| self.open.contains_key(fd));
                let names = paths.iter().map(|path| self.resolve(path)).collect::<Result<Vec<_>>>();
                if touches || names?.iter().any(Option::is_some) {
                    bail!("the model has no `{name}` ({result:?})");
                }
            }
        }
        Ok(())
    }

    fn ends(&mut self, number: usize, call: &Call, result: Option<i64>) -> Result<()> {
        let fd = result.and_then(|result| i32::try_from(result).ok());
        match (call, fd) {
            (Call::Open { path, append, .. }, Some(fd)) => {
                self.open.remove(&fd);
                let inode = match self.resolve(path)? {
                    None if self.is_root(path) => Some(ROOT),
                    None => None,
                    Some((folder, name)) => {
                        Some(*self.names(folder)?.get(&name).context("it is gone again")?)
                    }
                };
                if let Some(inode) = inode {
                    self.open.insert(fd, OpenFile { inode, at: 0, appends: *append });
                    self.inodes.iter_mut().for_each(|inode| inode.is_done(number));
                }
            }
            (Call::Write { fd, at: None, data }, _) => {
                if let Some(open) = self.open.get_mut(fd) {
                    open.at += data.len() as u64;
                    let inode = open.inode;
                    self.is_done(inode, number);
                }
            }
            (Call::Write { fd, .. } | Call::SetLen { fd, .. }, _) => {
                if let Some(inode) = self.open_inode(*fd) {
                    self.is_done(inode, number);
                }
            }
            (Call::Seek { fd }, _) => {
                if let (Some(open), Some(at)) = (self.open.get_mut(fd), result) {
                    open.at = u64::try_from(at)?;
                }
            }
            (Call::Sync { .. }, _) => {
                if let Some((inode, calls)) = self.syncs.remove(&number)
                    && let Some(inode) = self.inodes.get_mut(inode)
                {
                    inode.synced(&calls);
                }
            }
            (Call::Duplicate { fd }, Some(copy)) => match self.open.get(fd).cloned() {
                Some(open) => drop(self.open.insert(copy, open)),
                None => drop(self.open.remove(&copy)),
            },
            (
                Call::Rename { to: path, .. }
                | Call::Unlink { path }
                | Call::MakeDirectory { path }
                | Call::Symlink { path, .. },
                _,
            ) => {
                if let Some((folder, _)) = self.resolve(path)? {
                    self.is_done(folder, number);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn drops_sync_of(&self, inode: usize) -> bool {
        let kind = self.inodes.get(inode).map(|inode| &inode.kind);
        let is_directory = matches!(kind, Some(Kind::Directory { .. }));
        self.dropped.is_some_and(|dropped| dropped.drops(&self.path_of(inode), is_directory))
    }

    fn is_done(&mut self, inode: usize, call: usize) {
        self.inodes.get_mut(inode).into_iter().for_each(|inode| inode.is_done(call));
    }

    fn rename(&mut self, number: usize, from: &PathAt, to: &PathAt) -> Result<()> {
        match (self.resolve(from)?, self.resolve(to)?) {
            (None, None) => Ok(()),
            (Some((folder, from)), Some((other, to))) if folder == other => {
                let moved = *self.names(folder)?.get(&from).context("it is not there")?;
                self.change_names(number, folder, DirectoryChange::Rename(from, to.clone()))?;
                let inode = self.inodes.get_mut(moved).context("there is no such inode")?;
                inode.parent = Some((folder, to));
                Ok(())
            }
            _ => bail!("the model has no rename from one directory to another"),
        }
    }

    fn make(&mut self, call: usize, at: usize, name: OsString, new: Inode) -> Result<usize> {
        let number = self.inodes.len();
        self.inodes.push(Inode { parent: Some((at, name.clone())), ..new });
        self.change_names(call, at, DirectoryChange::Link(name, number))?;
        Ok(number)
    }

    fn change_file(&mut self, call: usize, inode: usize, change: FileChange) -> Result<()> {
        let Some(Kind::File { now, pending, .. }) = self.inodes.get_mut(inode).map(|i| &mut i.kind)
        else {
            bail!("it is no file");
        };
        change.apply(now);
        pending.push(Pending { call, is_done: false, change });
        Ok(())
    }

    fn change_names(&mut self, call: usize, at: usize, change: DirectoryChange) -> Result<()> {
        let Some(Kind::Directory { now, pending, .. }) =
            self.inodes.get_mut(at).map(|i| &mut i.kind)
        else {
            bail!("it is no directory");
        };
        change.apply(now);
        pending.push(Pending { call, is_done: false, change });
        Ok(())
    }

    fn names(&self, inode: usize) -> Result<&Names> {
        match self.inodes.get(inode).map(|inode| &inode.kind) {
            Some(Kind::Directory { now, .. }) => Ok(now),
            _ => bail!("it is no directory"),
        }
    }

    fn len(&self, inode: usize) -> Result<u64> {
        match self.inodes.get(inode).map(|inode| &inode.kind) {
            Some(Kind::File { now, .. }) => Ok(now.len()),
            _ => bail!("it is no file"),
        }
    }

    fn is_root(&self, path: &PathAt) -> bool {
        Path::new(OsStr::from_bytes(&path.path)) == self.root
    }

    /// The directory of a path, and the name in it; nothing for what does not lie below the root.
    fn resolve(&self, path: &PathAt) -> Result<Option<(usize, OsString)>> {
        let given = Path::new(OsStr::from_bytes(&path.path));
        let (mut folder, below) = match path.at {
            _ if given.is_absolute() => match given.strip_prefix(&self.root) {
                Ok(below) => (ROOT, below),
                Err(_) => return Ok(None),
            },
            Some(at) => match self.open_inode(at) {
                Some(folder) => (folder, given),
                None => return Ok(None),
            },
            // The worker's current directory is elsewhere.
            None => return Ok(None),
        };
        let Some(name) = below.file_name() else { return Ok(None) };
        for part in below.parent().into_iter().flat_map(Path::components) {
            let next = self.names(folder)?.get(part.as_os_str());
            folder = *next.with_context(|| format!("{} is not there", given.display()))?;
        }
        Ok(Some((folder, name.to_owned())))
    }
}
