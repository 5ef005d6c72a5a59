//! Where things are kept between fresh checkouts.

use std::path::{Path, PathBuf};

use crate::cmd::workspace_root;

/// Our directory in the cache of the machine.
const FOR_ALL_USERS: &str = "/var/cache/justonce";

/// Our directory in the user's cache, if the variables tell where that is.
pub(crate) fn directory(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("justonce"))
}

/// Where cargo builds: what the variable says, or `target` of the workspace.
pub(crate) fn target_dir(variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let named = variable("CARGO_TARGET_DIR").filter(|value| !value.is_empty());
    named.map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

/// Where other versions of the servers are kept: in our directory, unless root runs us. Root's
/// PostgreSQL runs as another user, who cannot enter root's home.
pub(crate) fn versions(is_root: bool, directory: &Path) -> PathBuf {
    let place = if is_root { Path::new(FOR_ALL_USERS) } else { directory };
    place.join("versions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)]) -> Option<PathBuf> {
        directory(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variable_counts_more_than_the_home() {
        assert_eq!(told(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/justonce".into()));
        let at_home = Some("/h/.cache/justonce".into());
        assert_eq!(told(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), at_home);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn programs_that_another_user_runs_are_not_kept_in_the_home_of_root() {
        let at_home = Path::new("/h/.cache/justonce");
        assert_eq!(versions(false, at_home), at_home.join("versions"));
        assert_eq!(versions(true, at_home), Path::new("/var/cache/justonce/versions"));
    }
}
