//! Rule: a file or directory that a document names in inline code exists.

use super::violation::Violation;
use crate::markdown::{self, Kind};

/// Checks one Markdown file; `paths` are all files of the tree, relative to its root.
///
/// Only what is clearly a path of ours counts: a name that ends as one of our sources, or a
/// directory with a slash at its end. It may be given without the directories that contain it.
pub(crate) fn check(path: &str, text: &str, paths: &[&str]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for line in markdown::lines(text).iter().filter(|line| line.kind == Kind::Prose) {
        // Every second part lies between backticks.
        for name in line.text.split('`').skip(1).step_by(2) {
            if is_ours(name) && !paths.iter().any(|path| has(path, name)) {
                let message = format!("there is no `{name}` in the tree");
                violations.push(Violation::new(path, line.number, message));
            }
        }
    }
    violations
}

/// Decisions and the changelog tell what was; names of then are right there.
pub(crate) fn is_history(path: &str) -> bool {
    path.starts_with("docs/decisions/0") || path == "CHANGELOG.md"
}

fn is_ours(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let is_source =
        [".rs", ".lua", ".sql"].iter().any(|end| name.len() > end.len() && name.ends_with(end));
    let is_directory = name.ends_with('/') && name.matches('/').count() > 1;
    name.chars().all(plain) && !name.starts_with('/') && (is_source || is_directory)
}

/// Whether a path ends with a file's name, or lies in a directory that does.
fn has(path: &str, name: &str) -> bool {
    let path = format!("/{path}");
    if name.ends_with('/') {
        path.contains(&format!("/{name}"))
    } else {
        path.ends_with(&format!("/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &[&str] = &["crates/core/src/engine/begin.rs", "crates/redis/lua/begin.lua"];

    fn found(text: &str) -> Vec<String> {
        check("a.md", text, TREE).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_named_must_exist() {
        let named = "`begin.rs`, `engine/begin.rs`, `core/src/engine/` and `redis/lua/begin.lua`";
        assert_eq!(found(named), Vec::<String>::new());
        assert_eq!(found("x\n`drive.rs`"), ["a.md:2: there is no `drive.rs` in the tree"]);
        assert_eq!(found("`gin.rs`").len(), 1);
        assert_eq!(found("`core/engine/`").len(), 1);
    }

    #[test]
    fn other_code_and_other_paths_are_left_alone() {
        let text =
            "`Engine::run`, `/etc/x/y.sql`, `.rs`, `a b.rs`, plain drive.rs\n```\n`drive.rs`\n```";
        assert_eq!(found(text), Vec::<String>::new());
        assert!(is_history("docs/decisions/0001-a.md") && !is_history("docs/decisions/README.md"));
    }
}
