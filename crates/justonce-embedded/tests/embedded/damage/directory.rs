//! A store's directory, and what can happen to its files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// What happens to a file.
#[derive(Debug)]
pub(crate) enum Damage {
    Deleted(PathBuf),
    /// The rest after so many bytes is gone.
    CutOff(PathBuf, usize),
    Zeroed(PathBuf),
    Swapped(PathBuf, PathBuf),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted(name) => write!(f, "{} deleted", name.display()),
            Self::CutOff(name, at) => write!(f, "{} cut off at {at}", name.display()),
            Self::Zeroed(name) => write!(f, "{} zeroed", name.display()),
            Self::Swapped(one, two) => {
                write!(f, "{} and {} swapped", one.display(), two.display())
            }
        }
    }
}

impl Damage {
    /// Never writes into a file: others may be linked to it.
    pub(crate) fn apply(&self, directory: &Path) {
        let replace = |name: &Path, bytes: Vec<u8>| {
            let path = directory.join(name);
            std::fs::remove_file(&path).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let read = |name: &Path| std::fs::read(directory.join(name)).unwrap();
        match self {
            Self::Deleted(name) => std::fs::remove_file(directory.join(name)).unwrap(),
            Self::CutOff(name, at) => replace(name, read(name)[..*at].to_vec()),
            Self::Zeroed(name) => replace(name, vec![0; read(name).len()]),
            Self::Swapped(one, two) => {
                let (first, second) = (read(one), read(two));
                replace(one, second);
                replace(two, first);
            }
        }
    }
}

/// Every damage to every file.
pub(crate) fn damages(directory: &Path) -> Vec<Damage> {
    let files = contents(directory);
    let names: Vec<&PathBuf> = files.keys().collect();
    let mut damages = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let name = (*name).clone();
        let used = files[&name].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        damages.push(Damage::Deleted(name.clone()));
        for at in [0, used / 2, used.saturating_sub(1)] {
            damages.push(Damage::CutOff(name.clone(), at));
        }
        damages.push(Damage::Zeroed(name.clone()));
        let alike = names[place + 1..].iter().filter(|other| kind(other) == kind(&name)).take(6);
        let next = names.get(place + 1).into_iter();
        let others: std::collections::BTreeSet<_> = alike.chain(next).collect();
        damages.extend(others.into_iter().map(|o| Damage::Swapped(name.clone(), (*o).clone())));
    }
    damages
}

/// What kind of a file it is, by its name or its folder's.
fn kind(name: &Path) -> String {
    let folder = name.parent().and_then(Path::file_name).unwrap_or_default();
    let own = name.file_name().unwrap().to_str().unwrap();
    let digits = own.trim_matches(|c: char| c.is_ascii_digit());
    let in_folder = folder.to_str().unwrap();
    let in_folder = if in_folder.parse::<u64>().is_ok() { "" } else { in_folder };
    format!("{in_folder}/{digits}")
}

/// Every file with its bytes.
pub(crate) fn contents(directory: &Path) -> Contents {
    let mut found = Contents::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Copies a store. Tables and blob files never change, so they are linked.
pub(crate) fn link(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            link(&path, &target);
        } else if ["tables", "blobs"].iter().any(|folder| from.ends_with(folder)) {
            std::fs::hard_link(path, target).unwrap();
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}
