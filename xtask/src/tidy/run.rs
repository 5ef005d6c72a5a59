//! Applies every rule to every file it is about.

use anyhow::{Result, bail};

use super::tree::Tree;
use super::violation::Violation;
use super::{banned, law, links, manifest, portable, roots, size};
use crate::cmd::Cmd;

/// Prints every violation as `path:line: message`, and fails if there is one.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read()?;
    let mut violations = check_files(&tree);
    violations.extend(check_packages(&tree)?);
    violations.sort();
    violations.dedup();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: {} files are in order", tree.files().count());
            Ok(())
        }
        count => bail!("tidy found {count} violation(s) of the house rules"),
    }
}

fn check_files(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files() {
        if path.ends_with(".rs") {
            violations.extend(check_rust(path, text));
        }
        if path.ends_with(".md") {
            violations.extend(links::check(path, text, &|target| {
                if target.ends_with(".md")
                    && let Some(text) = tree.text(target)
                {
                    links::Found::Markdown(links::anchors(text))
                } else if tree.exists(target) {
                    links::Found::Other
                } else {
                    links::Found::Nothing
                }
            }));
        }
        // Cargo writes the lock file, and the registry's address with it.
        if path != "Cargo.lock" {
            violations.extend(portable::check(path, text));
        }
    }
    violations
}

fn check_rust(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = size::check_text(path, text);
    match syn::parse_file(text) {
        Ok(file) => {
            violations.extend(size::check_functions(path, &file));
            violations.extend(roots::check(path, &file));
            violations.extend(banned::check(path, text, &file));
        }
        Err(error) => {
            let line = error.span().start().line;
            violations.push(Violation::new(path, line, format!("cannot be parsed: {error}")));
        }
    }
    violations
}

fn check_packages(tree: &Tree) -> Result<Vec<Violation>> {
    let metadata = Cmd::new("cargo", &["metadata", "--no-deps", "--format-version", "1"]);
    let packages = law::packages(&metadata.stdout()?)?;
    let mut violations = law::check_names(&packages);
    violations.extend(law::check_dependencies(&packages, &|path| tree.text(path)));
    for package in &packages {
        if let Some(text) = tree.text(&package.manifest) {
            violations.extend(manifest::check(&package.manifest, text));
        }
    }
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_parse_is_reported_at_its_line() {
        let violations = check_rust("a.rs", "fn a() {}\nfn fn\n");
        assert_eq!(violations.len(), 1);
        assert!(violations[0].to_string().starts_with("a.rs:2: cannot be parsed"));
    }

    #[test]
    fn a_tidy_file_passes() {
        assert_eq!(check_rust("a.rs", "//! Docs.\nfn a() {}\n"), []);
    }
}
