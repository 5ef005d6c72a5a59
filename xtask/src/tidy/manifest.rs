//! Rule: versions and lints stand in the root manifest; members inherit them.
//!
//! Cargo's metadata does not tell what was inherited, so the manifest's text is read. The reader
//! knows the part of TOML that manifests use.

use super::violation::Violation;

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks one member's manifest.
pub(crate) fn check(path: &str, text: &str) -> Vec<Violation> {
    let entries = entries(text);
    let mut violations = Vec::new();
    for dependency in dependencies(&entries) {
        if !dependency.inherited {
            let name = dependency.name;
            let message = format!("`{name}` is not inherited: write `{name}.workspace = true`");
            violations.push(Violation::new(path, dependency.line, message));
        }
    }
    for entry in &entries {
        if entry.key == ["package", "version"] && !inherits(&entry.value) {
            let message = "versions stand in the root manifest: write `version.workspace = true`";
            violations.push(Violation::new(path, entry.line, message));
        }
    }
    if !entries.iter().any(inherits_lints) {
        violations.push(Violation::new(
            path,
            1,
            "the lints are missing: `[lints] workspace = true`",
        ));
    }
    violations
}

fn inherits_lints(entry: &Entry) -> bool {
    (entry.key == ["lints", "workspace"] && entry.value == "true")
        || (entry.key == ["lints"] && inherits(&entry.value))
}

/// Whether a value such as `{ workspace = true, features = ["x"] }` inherits.
fn inherits(value: &str) -> bool {
    let value: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    let has = |assignment: &str| {
        value.contains(&format!("{{{assignment}")) || value.contains(&format!(",{assignment}"))
    };
    has("workspace=true") && !has("version=")
}

/// Tests may name a crate of ours by its path alone: Cargo leaves it out of the package.
fn is_path_only(value: &str) -> bool {
    value.contains("path") && !value.contains("version") && !value.contains("git")
}

fn is_dev(table: &[String]) -> bool {
    table.last().is_some_and(|name| name == "dev-dependencies")
}

#[derive(Debug)]
struct Dependency<'a> {
    name: &'a str,
    line: usize,
    inherited: bool,
}

/// The dependencies of all tables, each put together from however many entries it has.
fn dependencies(entries: &[Entry]) -> Vec<Dependency<'_>> {
    let mut found: Vec<(&[String], Dependency<'_>)> = Vec::new();
    for entry in entries {
        let Some((table, name, field)) = split_dependency(&entry.key) else {
            continue;
        };
        let inherited = match field {
            [] => inherits(&entry.value) || (is_dev(table) && is_path_only(&entry.value)),
            [field] => field == "workspace" && entry.value == "true",
            _ => false,
        };
        let known = found.iter_mut().find(|(other, it)| *other == table && it.name == name);
        match known {
            Some((_, dependency)) => dependency.inherited |= inherited,
            None => found.push((table, Dependency { name, line: entry.line, inherited })),
        }
    }
    found.into_iter().map(|(_, dependency)| dependency).collect()
}

/// Splits the key of a dependency into its table, its name and the field that is set.
fn split_dependency(key: &[String]) -> Option<(&[String], &str, &[String])> {
    // A target's table is `target.'cfg(…)'.dependencies`.
    let at = if key.first().is_some_and(|first| first == "target") { 2 } else { 0 };
    let (table, rest) = key.split_at_checked(at + 1)?;
    let is_table = table.last().is_some_and(|name| DEPENDENCY_TABLES.contains(&name.as_str()));
    let (name, field) = rest.split_first()?;
    is_table.then_some((table, name, field))
}

/// One assignment, its key spelled out from the root of the document.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    line: usize,
    key: Vec<String>,
    value: String,
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut table = Vec::new();
    let mut open = 0;
    for (index, line) in text.lines().enumerate() {
        let (code, depth) = without_comment(line);
        let code = code.trim();
        if open > 0 {
            // A list or table that began on an earlier line goes on.
            if let Some(entry) = entries.last_mut() {
                entry.value.push_str(code);
            }
            open += depth;
        } else if let Some(header) = code.strip_prefix('[') {
            table = split_key(header.trim_start_matches('[').trim_end_matches(']'));
        } else if let Some((key, value)) = code.split_once('=') {
            let mut full = table.clone();
            full.extend(split_key(key));
            entries.push(Entry { line: index + 1, key: full, value: value.trim().to_owned() });
            open = depth;
        }
    }
    entries
}

/// The line without its comment, and by how much it opens more brackets than it closes.
fn without_comment(line: &str) -> (&str, i32) {
    let mut depth = 0;
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, '#') => return (line.split_at(at).0, depth),
            (None, _) => {}
        }
    }
    (line, depth)
}

/// Splits `a."b.c".d` at the dots that are not quoted.
fn split_key(key: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut quote = None;
    for c in key.trim().chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '.') => parts.push(std::mem::take(&mut part)),
            (None, ' ' | '\t') => {}
            _ => part.push(c),
        }
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn lines(text: &str) -> Vec<usize> {
        check("Cargo.toml", text).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn every_way_to_inherit_passes() {
        let text = "[package]\nname = \"a\"\nversion.workspace = true\n\
                    [dependencies]\na.workspace = true\nb = { workspace = true }\n\
                    c = { features = [\n  \"x\", # why ]\n  \"y\",\n], workspace = true }\n\
                    d.workspace = true\nd.features = [\"x\"]\n\
                    [dev-dependencies.e]\nfeatures = []\nworkspace = true\n\
                    [target.'cfg(any(a, b))'.dependencies]\nf.workspace = true\n\
                    [features]\ng = [\"dep:a\"]\n";
        assert_eq!(lines(&format!("{text}{LINTS}")), [0; 0]);
    }

    #[test]
    fn every_way_not_to_is_found() {
        let text = "[package]\nversion = \"1\"\n\
                    [dependencies]\na = \"1\"\nb = { version = \"1\" }\nc.path = \"x\"\n\
                    d = { workspace = true, version = \"1\" }\n\
                    [build-dependencies.e]\nversion = \"1\"\n\
                    [target.\"cfg(unix)\".dev-dependencies]\nf = \"1\"\n";
        let mut lines = lines(&format!("{text}{LINTS}"));
        lines.sort_unstable();
        assert_eq!(lines, [2, 4, 5, 6, 7, 9, 11]);
    }

    #[test]
    fn tests_may_name_a_crate_by_its_path() {
        let text = "[dev-dependencies]\na = { path = \"../a\" }\n\
                    b = { path = \"../b\", version = \"1\" }\n\
                    [dependencies]\nc = { path = \"../c\" }\n";
        assert_eq!(lines(&format!("{text}{LINTS}")), [3, 5]);
    }

    #[test]
    fn inheritance_in_one_table_does_not_count_for_another() {
        let text = "[dependencies]\na.workspace = true\n[dev-dependencies]\na = \"1\"\n";
        assert_eq!(lines(&format!("{text}{LINTS}")), [4]);
    }

    #[test]
    fn the_lints_may_be_inherited_in_two_forms() {
        assert_eq!(lines("lints.workspace = true\n[package]\nname = \"a\"\n"), [0; 0]);
        assert_eq!(lines("lints = { workspace = true }\n"), [0; 0]);
        assert_eq!(lines(LINTS), [0; 0]);
        assert_eq!(lines("[package]\nname = \"a\"\n"), [1]);
        assert_eq!(lines("[lints.rust]\nunsafe_code = \"forbid\"\n"), [1]);
        assert_eq!(lines("# [lints]\n# workspace = true\n"), [1]);
    }
}
