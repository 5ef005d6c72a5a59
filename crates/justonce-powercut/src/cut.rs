//! A power cut: what is durable stays, and of the rest as much as chance wants.

use std::fmt::Write as _;
use std::path::Path;

use crate::disk::{
    Content, DirectoryChange, Disk, FileChange, Kind, Names, NewInode as Node, Pending, ROOT,
};
use crate::random::Random;
use crate::tree::Tree;

/// How much is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All that is not durable.
    Everything,
    /// Nothing.
    Nothing,
    /// Of files all, of directories nothing: names without contents.
    Contents,
    /// Of directories all, of files nothing: contents without names.
    Names,
    /// What chance wants.
    Some,
}

/// What a cut leaves, and what it took.
#[derive(Debug)]
pub struct Left {
    /// The files.
    pub tree: Tree,
    /// What was not durable and what became of it, for people.
    pub losses: String,
}

/// Makes one cut.
#[derive(Debug)]
pub struct Cut<'a> {
    disk: &'a Disk,
    random: Random,
    loss: Loss,
    /// In how many of a hundred cases a change of a file is kept, and is torn.
    kept: usize,
    torn: usize,
    sector_bytes: usize,
    left: Left,
}

impl<'a> Cut<'a> {
    /// Cuts the power. `random` decides what is lost.
    pub fn of(disk: &'a Disk, mut random: Random) -> Left {
        let losses = [
            (12, Loss::Everything),
            (4, Loss::Nothing),
            (8, Loss::Contents),
            (12, Loss::Names),
            (100, Loss::Some),
        ];
        let chance = random.below(100);
        let loss = losses.iter().scan(0, |sum, (part, loss)| {
            *sum += part;
            Some((*sum, *loss))
        });
        let loss = loss.into_iter().find(|(sum, _)| chance < *sum).map_or(Loss::Some, |(_, l)| l);
        let kept = *random.one_of(&[5, 30, 50, 70, 95]).unwrap_or(&50);
        let torn = *random.one_of(&[0, 30, 60, 95]).unwrap_or(&50);
        let sector_bytes = *random.one_of(&[512, 4096]).unwrap_or(&512);
        let left = Left { tree: Tree::default(), losses: String::new() };
        let mut cut = Self { disk, random, loss, kept, torn, sector_bytes, left };
        cut.say(format_args!(
            "lost: {loss:?}; sectors of {sector_bytes} bytes, {kept} % kept, {torn} % torn"
        ));
        cut.add(ROOT, Path::new(""));
        cut.left
    }

    fn say(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.left.losses, "{what}");
    }

    /// The names in a directory.
    fn names(
        &mut self,
        directory: usize,
        durable: &Names,
        pending: &[Pending<DirectoryChange>],
    ) -> Names {
        let count = match self.loss {
            Loss::Everything | Loss::Names => 0,
            Loss::Nothing | Loss::Contents => pending.len(),
            // The last ones are lost: file systems keep the order of the changes of one directory.
            Loss::Some => self.random.below(pending.len() + 1),
        };
        let mut names = durable.clone();
        for (place, change) in pending.iter().enumerate() {
            let is_kept = place < count;
            if is_kept {
                change.change.apply(&mut names);
            }
            self.tell_of_name(directory, change, is_kept);
        }
        names
    }

    fn tell_of_name(&mut self, at: usize, pending: &Pending<DirectoryChange>, is_kept: bool) {
        let what = match &pending.change {
            DirectoryChange::Link(name, _) => format!("{} was made", name.display()),
            DirectoryChange::Unlink(name) => format!("{} was removed", name.display()),
            DirectoryChange::Rename(from, to) => {
                format!("{} was renamed to {}", from.display(), to.display())
            }
        };
        let folder = shown(&self.disk.path_of(at));
        let kept = if is_kept { "kept" } else { "lost" };
        self.say(format_args!("  call {}: in {folder}, {what}: {kept}", pending.call));
    }

    /// Adds a directory and what is in it. What lies in one that is lost is lost with it.
    fn add(&mut self, directory: usize, path: &Path) {
        let Some(Kind::Directory { durable, pending, .. }) =
            self.disk.inode(directory).map(|inode| &inode.kind)
        else {
            return;
        };
        for (name, inode) in self.names(directory, durable, pending) {
            let path = path.join(name);
            let Some(found) = self.disk.inode(inode) else { continue };
            let node = match &found.kind {
                Kind::Directory { .. } => Node::Directory,
                Kind::Symlink(target) => Node::Symlink(target.clone()),
                Kind::File { now, durable, pending } => {
                    Node::File(self.file(&path, now, durable, pending))
                }
            };
            self.left.tree.0.push((path.clone(), node));
            self.add(inode, &path);
        }
    }

    fn file(
        &mut self,
        path: &Path,
        now: &Content,
        durable: &Content,
        pending: &[Pending<FileChange>],
    ) -> Content {
        match self.loss {
            Loss::Nothing | Loss::Names => return now.clone(),
            Loss::Everything | Loss::Contents if pending.is_empty() => return durable.clone(),
            _ => {}
        }
        let mut content = durable.clone();
        for Pending { call, change, is_done } in pending {
            let under_way = if *is_done { "" } else { ", under way" };
            let became = match change {
                FileChange::SetLen(len) => {
                    let is_kept = self.is_kept();
                    if is_kept {
                        content.set_len(*len);
                    }
                    let kept = if is_kept { "kept" } else { "lost" };
                    format!("length {len}: {kept}")
                }
                FileChange::Write(at, data) => {
                    format!("{} bytes at {at}: {}", data.len(), self.write(&mut content, *at, data))
                }
            };
            self.say(format_args!("  call {call}: {}, {became}{under_way}", shown(path)));
        }
        content
    }

    fn is_kept(&mut self) -> bool {
        self.loss == Loss::Some && self.random.percent(self.kept)
    }

    /// What of a write is on disk.
    fn write(&mut self, content: &mut Content, at: u64, data: &[u8]) -> String {
        let end = at + data.len() as u64;
        if self.loss == Loss::Some && self.random.percent(self.torn) {
            let mut sectors = 0;
            let mut kept = 0;
            let mut done = 0;
            while done < data.len() {
                let here = at + done as u64;
                let in_sector = usize::try_from(here % self.sector_bytes as u64).unwrap_or(0);
                let length = (self.sector_bytes - in_sector).min(data.len() - done);
                sectors += 1;
                if self.is_kept() {
                    kept += 1;
                    content.write(here, data.get(done..done + length).unwrap_or_default());
                }
                done += length;
            }
            self.grow(content, end);
            return format!("{kept} of {sectors} sectors kept");
        }
        if self.is_kept() {
            content.write(at, data);
            return "kept".to_owned();
        }
        if self.grow(content, end) { "lost, its length kept" } else { "lost" }.to_owned()
    }

    /// The new length of a file may be durable before its contents are.
    fn grow(&mut self, content: &mut Content, end: u64) -> bool {
        let grows = end > content.len() && self.loss == Loss::Some && self.random.percent(50);
        if grows {
            content.set_len(end);
        }
        grows
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "the root".to_owned() } else { path.display().to_string() }
}
