//! The map of the tree in ARCHITECTURE.md: packages, their top-level modules, and what they are.
//!
//! A package is described by its manifest, a module by the first sentence of its `//!` lines. Only
//! what cannot describe itself is described here.

use super::modules::Graph;
use super::packages::Package;
use super::tiers::TIERS;
use super::violation::Violation;

/// The file with the map, and the name of its part.
pub(crate) const PLACE: (&str, &str) = ("ARCHITECTURE.md", "tree");

/// Files and folders that hold no description of their own.
const OTHERS: &[(&str, &str)] = &[
    ("Cargo.toml", "Versions, lints and profiles; default member: the server"),
    ("clippy.toml", "Bans direct calls for time, ids and sleeps, each with its reason"),
    ("deny.toml", "Licences, sources and duplicates among the dependencies"),
    (".cargo/config.toml", "The alias `cargo xtask`"),
    (".ci/run", "What CI starts; it calls `cargo xtask ci`"),
    ("docs/", "Guarantees, contract, configuration, operation, decisions, benchmarks"),
    (
        "crates/justonce-postgres/migrations/",
        "The tables with their CHECKs, and the rules as functions",
    ),
    ("crates/justonce-postgres/sql/", "The statements of the store"),
    ("crates/justonce-redis/lua/", "The scripts: each step of the protocol is one"),
];

/// Columns of a row.
const COLUMNS_MAX: usize = 100;
/// Columns before the description.
const NAME_COLUMNS: usize = 30;

/// The rows of the map, and the modules without a description.
pub(crate) fn draw<'a>(
    packages: &[(&Package, &[Graph])],
    text: &dyn Fn(&str) -> Option<&'a str>,
    exists: &dyn Fn(&str) -> bool,
) -> (String, Vec<Violation>) {
    let mut rows = String::from("```text\n");
    let mut violations = Vec::new();
    for (path, about) in OTHERS {
        if !exists(path) {
            let message = format!("`{path}` is gone: remove its row from map.rs");
            violations.push(Violation::new("xtask/src/tidy/map.rs", 1, message));
        } else if !path.starts_with("crates/") {
            push(&mut rows, 0, path, about);
        }
    }
    let (mut inside, beside): (Vec<_>, Vec<_>) =
        packages.iter().partition(|(package, _)| package.folder().starts_with("crates/"));
    // The table of tiers is read from the bottom, and so is the map.
    inside.sort_by_key(|(it, _)| TIERS.iter().position(|(name, _)| *name == it.name));
    rows.push_str("crates/\n");
    for (package, graphs) in inside {
        let name = format!("{}/", package.name);
        push(&mut rows, 1, &name, sentence(&package.description));
        let folder = format!("{}/", package.folder());
        for (path, about) in OTHERS {
            if let Some(below) = path.strip_prefix(&folder).filter(|_| exists(path)) {
                push(&mut rows, 2, below, about);
            }
        }
        for file in graphs.iter().flat_map(|graph| graph.modules.values()) {
            let Some(name) = shown(file, &folder) else {
                continue;
            };
            match text(file).and_then(first_sentence) {
                Some(about) => push(&mut rows, 2, name, &about),
                None => violations.push(Violation::new(file, 1, "the module has no `//!` line")),
            }
        }
    }
    for (package, _) in beside {
        push(&mut rows, 0, &format!("{}/", package.folder()), sentence(&package.description));
    }
    rows.push_str("```\n");
    (rows, violations)
}

/// How the map names a module: its folder if it has one. A module within the root file has no row.
fn shown<'a>(file: &'a str, folder: &str) -> Option<&'a str> {
    let name = file.strip_prefix(folder)?;
    if name.ends_with("/lib.rs") || name.ends_with("/main.rs") {
        return None;
    }
    Some(name.strip_suffix("mod.rs").unwrap_or(name))
}

fn push(rows: &mut String, depth: usize, name: &str, about: &str) {
    let name = format!("{}{name}", "  ".repeat(depth));
    let row = format!("{name:<width$} {about}", width = NAME_COLUMNS - 1);
    rows.push_str(&shortened(&row));
    rows.push('\n');
}

/// A row that fits; one that does not ends after a clause, or within it.
fn shortened(row: &str) -> String {
    let Some((end, _)) = row.char_indices().nth(COLUMNS_MAX) else {
        return row.to_owned();
    };
    let head = row.split_at(end).0;
    let clause = [": ", "; "].iter().filter_map(|mark| head.rfind(mark)).max();
    let cut = clause.filter(|at| *at > COLUMNS_MAX / 2);
    match (cut, head.rfind(' ')) {
        (Some(at), _) => head.split_at(at).0.to_owned(),
        (None, Some(at)) => format!("{} …", head.split_at(at).0),
        (None, None) => head.to_owned(),
    }
}

/// The first sentence of a file's `//!` lines, as plain text.
fn first_sentence(text: &str) -> Option<String> {
    let docs = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<_> = docs.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ").replace("**", "").replace("[`", "`").replace("`]", "`");
    let sentence = sentence(&paragraph);
    (!sentence.is_empty()).then(|| sentence.to_owned())
}

/// The first sentence of a text, without its full stop.
fn sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_described_by_its_first_sentence() {
        let text = "//! Reads **all** of [`Them`], and\n//! more. And so on.\n//!\n//! Later.\n";
        assert_eq!(first_sentence(text).unwrap(), "Reads all of `Them`, and more");
        assert_eq!(first_sentence("use a::b;\n//! No."), None);
    }

    #[test]
    fn a_long_row_ends_after_a_clause() {
        let row = format!("{} and {}: {}", "x".repeat(40), "y".repeat(40), "z ".repeat(40));
        assert_eq!(shortened(&row), format!("{} and {}", "x".repeat(40), "y".repeat(40)));
        let row = "word ".repeat(30);
        assert!(shortened(&row).ends_with("word …"));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn the_map_shows_packages_and_their_modules() {
        let core = Package {
            name: "a".into(),
            manifest: "crates/a/Cargo.toml".into(),
            description: "Does a.".into(),
            ..Package::default()
        };
        let bench = Package { manifest: "bench/Cargo.toml".into(), ..core.clone() };
        let files = ["crates/a/src/lib.rs", "crates/a/src/b/mod.rs", "crates/a/src/c.rs"];
        let modules = ["prelude", "b", "c"].iter().zip(files);
        let modules = modules.map(|(name, file)| ((*name).to_owned(), file.to_owned())).collect();
        let graph = Graph { modules, ..Graph::default() };
        let text = |path: &str| (!path.ends_with("c.rs")).then_some("//! It is b.\n");
        let (rows, violations) = draw(&[(&core, &[graph]), (&bench, &[])], &text, &|_| true);
        let row = |name: &str, about: &str| format!("{name:<29} {about}\n");
        assert!(rows.contains(&format!("crates/\n{}", row("  a/", "Does a"))));
        assert!(rows.contains(&row("    src/b/", "It is b")));
        assert!(rows.ends_with(&format!("{}```\n", row("bench/", "Does a"))));
        assert!(!rows.contains("lib.rs"));
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].path, "crates/a/src/c.rs");
    }
}
