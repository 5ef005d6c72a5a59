//! Whether one pattern takes all requests of another.

use justonce::http::Pattern;

/// A segment that no pattern names: what matches it matches any.
const ANY: &str = "\u{1}any";

/// Whether every request of `narrow` is also one of `wide`.
pub(super) fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let text = narrow.to_string();
    let path = text.split_whitespace().nth(1).unwrap_or_default();
    let samples = samples(path);
    narrow.methods().iter().all(|method| samples.iter().all(|sample| wide.matches(method, sample)))
}

/// Paths that stand for all of a pattern's: a `*` at the end is one segment, or more.
fn samples(path: &str) -> Vec<String> {
    let is_name = |part: &str| part.starts_with('{') && part.ends_with('}');
    let parts = path.split('/').map(|part| if part == "*" || is_name(part) { ANY } else { part });
    let one: String = parts.collect::<Vec<_>>().join("/");
    if path.ends_with("/*") { vec![format!("{one}/{ANY}"), one] } else { vec![one] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(wide: &str, narrow: &str) -> bool {
        covers(&Pattern::parse(wide).unwrap(), &Pattern::parse(narrow).unwrap())
    }

    #[test]
    fn a_pattern_covers_what_it_matches_in_every_case() {
        assert!(covered("POST /a/*", "POST /a/b"));
        assert!(covered("* /a/*", "POST /a/{id}/c"));
        assert!(covered("POST /a/{x}", "POST /a/{y}"));
        assert!(covered("POST,PUT /a", "PUT /a"));
        assert!(covered("POST /p%61y", "POST /pay"));
        assert!(!covered("POST /a/b", "POST /a/*"));
        assert!(!covered("POST /a/{id}", "POST /a/*"));
        assert!(!covered("PUT /a", "POST,PUT /a"));
        assert!(!covered("POST /*", "POST /"));
    }
}
