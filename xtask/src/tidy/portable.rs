//! Rule: nothing in the tree is true on one machine only.

use super::violation::Violation;

/// Beginnings of paths on a developer's machine, in pieces so that this file passes.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];

/// Parts of the host names of package registries: where packages come from is the machine's
/// configuration, and often a mirror.
const REGISTRIES: [&str; 8] = [
    concat!("://", "crates"),
    concat!("index.", "crates"),
    concat!("static.", "crates"),
    concat!("registry.", "npm"),
    concat!("registry.", "yarn"),
    concat!("py", "pi.o"),
    concat!("python", "hosted."),
    concat!("deb.", "debian"),
];

/// Checks every line of a text file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for needle in MACHINE_PATHS {
            if has_path(line, needle) {
                let message = format!("`{needle}` is a path of one machine: make it relative");
                violations.push(Violation::new(path, index + 1, message));
            }
        }
        let lower = line.to_lowercase();
        for needle in REGISTRIES {
            if lower.contains(needle) {
                let message = format!("`{needle}` is a package registry: leave it to the machine");
                violations.push(Violation::new(path, index + 1, message));
            }
        }
    }
    violations
}

/// Whether an absolute path begins here; the middle of a longer path or address is no concern.
fn has_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let (before, _) = line.split_at(at);
        !before.ends_with(|c: char| c.is_alphanumeric() || "_-.})>".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        for needle in MACHINE_PATHS {
            for line in [needle.to_owned(), format!("see `{needle}x`"), format!("file://{needle}")]
            {
                let violations = check("a.md", &format!("ok\n{line}"));
                assert_eq!(violations.len(), 1, "{line}");
                assert_eq!(violations[0].line, 2);
            }
        }
    }

    #[test]
    fn the_middle_of_a_path_is_not_a_machine() {
        for needle in MACHINE_PATHS {
            let text = format!("docs{needle}x https://example.org{needle}x {{id}}{needle}x");
            assert_eq!(check("a.md", &text), []);
        }
    }

    #[test]
    fn registries_are_found_in_any_case() {
        for needle in REGISTRIES {
            assert_eq!(check("a.md", &format!("from {needle}x")).len(), 1);
            assert_eq!(check("a.md", &needle.to_uppercase()).len(), 1);
        }
        assert_eq!(check("a.md", "the crates/ folder; deb packages of Debian"), []);
    }
}
