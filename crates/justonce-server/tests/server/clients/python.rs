//! The Python of these tests.

use std::path::PathBuf;

/// The Python that `cargo xtask services` has made, in the same place.
pub(crate) fn python() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|cache| cache.join("justonce"));
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    cache.unwrap_or(workspace).join("python/bin/python")
}
