//! The files under check: what git tracks or would track.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cmd::{Cmd, workspace_root};

/// The text files of the workspace.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    texts: BTreeMap<String, String>,
}

impl Tree {
    /// Reads every text file that git does not ignore, also those not yet added.
    pub(crate) fn read() -> Result<Self> {
        let root = workspace_root();
        let listing = Cmd::new("git", &["ls-files", "-z", "-co", "--exclude-standard"]).stdout()?;
        let mut texts = BTreeMap::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            if let Some(text) = read_text(&root.join(path))? {
                texts.insert(path.to_owned(), text);
            }
        }
        Ok(Self { root, texts })
    }

    /// Every text file: its path relative to the root, and its text.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Replaces the text of one file on disk.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        std::fs::write(self.root.join(path), text).with_context(|| format!("cannot write {path}"))
    }

    /// Whether a file or directory exists, also one that is not text.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// A file's text, or nothing for what has none: a deleted file, a link, a binary.
fn read_text(path: &Path) -> Result<Option<String>> {
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_text_and_a_missing_one_is_nothing() {
        let here = workspace_root().join("xtask/src/tidy/tree.rs");
        assert!(read_text(&here).unwrap().unwrap().contains("fn read_text"));
        assert_eq!(read_text(&here.with_extension("missing")).unwrap(), None);
        assert_eq!(read_text(here.parent().unwrap()).unwrap(), None);
    }
}
