//! What a process asks of the file system, as it was recorded.

use std::sync::Arc;

/// A path, and the directory from which it counts; nothing stands for the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAt {
    /// The open directory.
    pub at: Option<i32>,
    /// The path.
    pub path: Vec<u8>,
}

/// A call that succeeded, or that was under way when the process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opens a file, and may make it.
    Open {
        /// Which.
        path: PathAt,
        /// Whether it is made if there is none.
        create: bool,
        /// Whether its contents go.
        truncate: bool,
        /// Whether all writes go to its end.
        append: bool,
    },
    /// Writes, at a place or where the last write ended.
    Write {
        /// The open file.
        fd: i32,
        /// The place.
        at: Option<u64>,
        /// What was written.
        data: Arc<[u8]>,
    },
    /// Cuts a file off, or makes it longer.
    SetLen {
        /// The open file.
        fd: i32,
        /// Its length from now on.
        len: u64,
    },
    /// Moves the place where the next write goes.
    Seek {
        /// The open file.
        fd: i32,
    },
    /// Makes a file or a directory durable.
    Sync {
        /// The open file or directory.
        fd: i32,
    },
    /// Closes.
    Close {
        /// What was open.
        fd: i32,
    },
    /// Opens the same once more.
    Duplicate {
        /// What is open.
        fd: i32,
    },
    /// Gives another name.
    Rename {
        /// The name before.
        from: PathAt,
        /// The name after.
        to: PathAt,
    },
    /// Removes a name.
    Unlink {
        /// The name.
        path: PathAt,
    },
    /// Makes a directory.
    MakeDirectory {
        /// Its name.
        path: PathAt,
    },
    /// Makes a symbolic link.
    Symlink {
        /// What it shows.
        target: Vec<u8>,
        /// Its name.
        path: PathAt,
    },
    /// Something of which the model does not know what it leaves; only allowed where it does not
    /// concern the store.
    Other {
        /// The name of the call.
        name: String,
        /// What it works on, if that is open.
        fds: Vec<i32>,
        /// What it works on by name.
        paths: Vec<PathAt>,
    },
}

/// A call and what it returned; nothing if the process ended first.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The call.
    pub call: Call,
    /// What it returned.
    pub result: Option<i64>,
}

/// A call begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// From here on it may have happened.
    Begins(usize),
    /// From here on it has happened.
    Ends(usize),
}

/// What one process did.
#[derive(Debug, Default)]
pub struct Recording {
    /// Its calls, in the order in which they began.
    pub calls: Vec<Recorded>,
    /// What happened when: each names its call by its place.
    pub events: Vec<Event>,
}

impl Recording {
    /// The call of an event.
    #[must_use]
    pub fn call(&self, event: Event) -> Option<&Recorded> {
        let (Event::Begins(call) | Event::Ends(call)) = event;
        self.calls.get(call)
    }

    /// The line that the worker says with an event, if it does.
    #[must_use]
    pub fn line(&self, event: Event) -> Option<&str> {
        let Event::Begins(_) = event else { return None };
        match &self.call(event)?.call {
            Call::Write { fd: 1, data, .. } => std::str::from_utf8(data).ok()?.strip_suffix('\n'),
            _ => None,
        }
    }
}
