//! Files and directories as a cut leaves them, and as they are written to a real directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::disk::{Disk, Kind, NewInode as Node, ROOT};
use crate::mutants::Dropped;

/// Everything that a cut has left; each directory before what is in it.
#[derive(Clone, Debug, Default)]
pub struct Tree(pub Vec<(PathBuf, Node)>);

impl Tree {
    /// A disk with all of this on it, durable.
    ///
    /// # Errors
    ///
    /// If something lies in what is no directory.
    pub fn on_disk(&self, root: &Path, dropped: Option<Dropped>) -> Result<Disk> {
        let mut disk = Disk::new(root, dropped);
        let mut numbers = HashMap::from([(PathBuf::new(), ROOT)]);
        for (path, node) in &self.0 {
            let folder = path.parent().and_then(|folder| numbers.get(folder)).copied();
            let folder = folder.context("its directory comes later")?;
            let name = path.file_name().context("it has no name")?;
            let number = disk.add_durable(folder, name.to_owned(), node.clone())?;
            numbers.insert(path.clone(), number);
        }
        Ok(disk)
    }

    /// Everything as processes see it.
    #[must_use]
    pub fn now(disk: &Disk) -> Self {
        let mut tree = Self::default();
        tree.add_now(disk, ROOT, Path::new(""));
        tree
    }

    fn add_now(&mut self, disk: &Disk, inode: usize, path: &Path) {
        let Some(inode) = disk.inode(inode) else { return };
        match &inode.kind {
            Kind::Directory { now, .. } => {
                if !path.as_os_str().is_empty() {
                    self.0.push((path.to_owned(), Node::Directory));
                }
                for (name, inode) in now {
                    self.add_now(disk, *inode, &path.join(name));
                }
            }
            Kind::File { now, .. } => self.0.push((path.to_owned(), Node::File(now.clone()))),
            Kind::Symlink(target) => self.0.push((path.to_owned(), Node::Symlink(target.clone()))),
        }
    }

    /// Writes everything below a directory.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, below: &Path) -> io::Result<()> {
        for (path, node) in &self.0 {
            let path = below.join(path);
            match node {
                Node::Directory => DirBuilder::new().mode(0o700).create(path)?,
                Node::Symlink(target) => symlink(OsStr::from_bytes(target), path)?,
                Node::File(content) => {
                    let file =
                        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                    file.set_len(content.len())?;
                    for (at, part) in content.parts() {
                        file.write_all_at(part, at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares with a real directory: the model must have understood everything.
    ///
    /// # Errors
    ///
    /// If it has not.
    pub fn compare(&self, below: &Path) -> Result<()> {
        let mut found = Vec::new();
        list(below, Path::new(""), &mut found)?;
        let mut expected: Vec<&Path> = self.0.iter().map(|(path, _)| path.as_path()).collect();
        found.sort_unstable();
        expected.sort_unstable();
        if found != expected {
            bail!("the model has {expected:?}, and the directory has {found:?}");
        }
        for (path, node) in &self.0 {
            let Node::File(content) = node else { continue };
            let bytes = std::fs::read(below.join(path))?;
            let all = content.to_vec();
            if bytes != all {
                let at = bytes.iter().zip(&all).take_while(|(a, b)| a == b).count();
                let lengths = (all.len(), bytes.len());
                bail!(
                    "the model has another {} from byte {at}, lengths {lengths:?}",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

fn list(below: &Path, at: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(below.join(at))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(below, &path, found)?;
        }
        found.push(path);
    }
    Ok(())
}

/// Reads a part of a real file, as far as it goes.
///
/// # Errors
///
/// What the system says.
pub fn read_part(path: &Path, at: u64, length: usize) -> Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = vec![0; length];
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let count = file.read_at(rest, at + read as u64)?;
        if count == 0 {
            break;
        }
        read += count;
    }
    bytes.truncate(read);
    Ok(bytes)
}
