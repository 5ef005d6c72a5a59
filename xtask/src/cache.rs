//! Where things are kept between fresh checkouts.

use std::path::PathBuf;

/// Our directory in the user's cache, if the variables tell where that is.
pub(crate) fn directory(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("justonce"))
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
}
