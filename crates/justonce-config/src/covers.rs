//! Whether one pattern takes all requests of another.

use justonce_http::Pattern;

/// A segment that no pattern names: what matches it matches any.
const ANY: &str = "\u{1}any";

/// A pattern, with paths that stand for all of its.
#[derive(Debug)]
pub(super) struct Reach<'p> {
    pattern: &'p Pattern,
    samples: Vec<String>,
}

impl<'p> Reach<'p> {
    /// The reach of a pattern.
    pub(super) fn of(pattern: &'p Pattern) -> Self {
        let text = pattern.to_string();
        let path = text.split_whitespace().nth(1).unwrap_or_default();
        Self { pattern, samples: samples(path) }
    }

    /// Whether every request of the other is also one of this.
    pub(super) fn covers(&self, narrow: &Reach<'_>) -> bool {
        let takes = |path: &String| {
            narrow.pattern.methods().iter().all(|method| self.pattern.matches(method, path))
        };
        narrow.samples.iter().all(takes)
    }
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
        let [wide, narrow] = [wide, narrow].map(|text| Pattern::parse(text).unwrap());
        Reach::of(&wide).covers(&Reach::of(&narrow))
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
