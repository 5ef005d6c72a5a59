//! Rule: every direct dependency of what is published has a line with its reason.
//!
//! The reasons are written by people; who uses a dependency is written by tidy.

use std::collections::BTreeMap;

use super::packages::Package;
use super::violation::Violation;

/// The file with the reasons, and the name of its part.
pub(crate) const PLACE: (&str, &str) = ("docs/dependencies.md", "dependencies");

/// The table as it should be, given the one that is there.
pub(crate) fn table(packages: &[Package], current: &str) -> String {
    let reasons = reasons(current);
    let mut table = String::from("| dependency | used by | reason |\n|---|---|---|\n");
    for (name, users) in users(packages) {
        let reason = reasons.get(name).copied().unwrap_or_default();
        table.push_str(&format!("| `{name}` | {} | {reason} |\n", users.join(", ")));
    }
    table
}

/// The dependencies without a reason.
pub(crate) fn check(packages: &[Package], current: &str) -> Vec<Violation> {
    let reasons = reasons(current);
    let lacking = users(packages).into_keys().filter(|name| {
        reasons.get(name).is_none_or(|reason| !reason.contains(char::is_alphabetic))
    });
    lacking
        .map(|name| Violation::new(PLACE.0, 1, format!("`{name}` has no reason: write one")))
        .collect()
}

/// Each dependency that is not ours, with the short names of the packages that need it.
fn users(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package.published) {
        for name in package.needs().filter(|name| !packages.iter().any(|it| it.name == *name)) {
            let user = package.name.strip_prefix("justonce-").unwrap_or(&package.name);
            let users = users.entry(name).or_default();
            if !users.contains(&user) {
                users.push(user);
            }
        }
    }
    users
}

/// The reasons in a table, by the name of the dependency.
fn reasons(table: &str) -> BTreeMap<&str, &str> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix('|')?.splitn(3, " | ");
        let (name, _, reason) = (cells.next()?, cells.next()?, cells.next()?);
        Some((name.trim_end_matches('`'), reason.trim()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::super::packages::Dependency;
    use super::*;

    fn package(name: &str, needs: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency { name: (*name).into(), ..Dependency::default() };
        let dependencies = needs.iter().map(dependency).collect();
        Package { name: name.into(), published: true, dependencies, ..Package::default() }
    }

    #[test]
    fn the_users_are_written_and_the_reasons_kept() {
        let mut unpublished = package("bench", &["rusqlite"]);
        unpublished.published = false;
        let packages = [
            package("justonce-core", &["bytes"]),
            package("justonce-http", &["justonce-core", "bytes", "http"]),
            unpublished,
        ];
        let current = "| `bytes` | all | bodies \\| keys |\n| `gone` | x | old |\n";
        let expected = "| dependency | used by | reason |\n|---|---|---|\n\
                        | `bytes` | core, http | bodies \\| keys |\n| `http` | http |  |\n";
        let table = table(&packages, current);
        assert_eq!(table, expected);
        let lacking = check(&packages, &table);
        assert_eq!(lacking.len(), 1);
        assert!(lacking[0].message.starts_with("`http` has no reason"));
    }
}
