//! A model of a disk: what is durable, and what was asked for since.

mod content;
mod inode;
mod model;

pub use content::Content;
pub use inode::{DirectoryChange, FileChange, Inode, Kind, Names, NewInode, Pending};
pub use model::{Disk, ROOT};
