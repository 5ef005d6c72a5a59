//! Rule: the dependency law, and that a crate's folder has the crate's name.
//!
//! The core depends on no crate of ours, the libraries on the core only, the facade on all
//! libraries, the server on the facade. What tests depend on is free, and so are the packages
//! outside `crates/`.

use anyhow::{Context, Result};
use serde_json::Value;

use super::violation::Violation;

const CORE: &str = "justonce-core";
const FACADE: &str = "justonce";
const TESTKIT: &str = "justonce-testkit";
const SERVER: &str = "justonce-server";

/// A member of the workspace, as far as the law is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    /// Its manifest, relative to the workspace root.
    pub(crate) manifest: String,
    /// The names of what it depends on, other than for tests.
    pub(crate) dependencies: Vec<String>,
}

impl Package {
    /// The folder of a package under `crates/`.
    fn folder(&self) -> Option<&str> {
        self.manifest.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")
    }
}

/// Reads the answer of `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let root = text(&metadata, "workspace_root")?;
    list(&metadata, "packages")?
        .iter()
        .map(|package| {
            let manifest = text(package, "manifest_path")?.replace('\\', "/");
            let relative = manifest.strip_prefix(&root.replace('\\', "/"));
            let mut dependencies = Vec::new();
            for dependency in list(package, "dependencies")? {
                if dependency.get("kind").and_then(Value::as_str) != Some("dev") {
                    dependencies.push(text(dependency, "name")?.to_owned());
                }
            }
            Ok(Package {
                name: text(package, "name")?.to_owned(),
                manifest: relative.unwrap_or(&manifest).trim_start_matches('/').to_owned(),
                dependencies,
            })
        })
        .collect()
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    let text = value.get(name).and_then(Value::as_str);
    text.with_context(|| format!("cargo metadata has no text `{name}`"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    let list = value.get(name).and_then(Value::as_array);
    list.with_context(|| format!("cargo metadata has no list `{name}`"))
}

/// Checks that each folder in `crates/` is named after its package.
pub(crate) fn check_names(packages: &[Package]) -> Vec<Violation> {
    packages
        .iter()
        .filter_map(|package| {
            let folder = package.folder().filter(|folder| *folder != package.name)?;
            let message = format!("package `{}` lives in folder `{folder}`", package.name);
            Some(Violation::new(&package.manifest, 1, message))
        })
        .collect()
}

/// Checks who depends on whom. The manifests' texts serve only to find the line to blame.
pub(crate) fn check_dependencies<'a>(
    packages: &[Package],
    manifest: &dyn Fn(&str) -> Option<&'a str>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages.iter().filter(|package| package.folder().is_some()) {
        for dependency in &package.dependencies {
            let Some(ours) = packages.iter().find(|other| other.name == *dependency) else {
                continue;
            };
            if let Some(rule) = broken_rule(&package.name, ours) {
                let line = manifest(&package.manifest).map_or(1, |text| line_of(text, dependency));
                let message = format!("`{}` depends on `{dependency}`: {rule}", package.name);
                violations.push(Violation::new(&package.manifest, line, message));
            }
        }
    }
    violations
}

/// The part of the law that one dependency breaks.
fn broken_rule(name: &str, dependency: &Package) -> Option<&'static str> {
    let on = dependency.name.as_str();
    let is_library = dependency.folder().is_some() && ![TESTKIT, SERVER].contains(&on);
    let (allowed, rule) = match name {
        CORE => (false, "the core depends on no crate of ours"),
        FACADE => (is_library && on != FACADE, "the facade depends on libraries only"),
        SERVER => (on == FACADE, "the server depends on the facade only"),
        _ => (on == CORE, "a library depends on the core only"),
    };
    (!allowed).then_some(rule)
}

/// The first line that begins with the dependency's name, or the first line.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let line = line.trim_start();
        let name = line.strip_prefix("[dependencies.").unwrap_or(line);
        name.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=', ']']))
    };
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// What the law says when one of the usual packages is replaced by the given one.
    fn breaches(changed: Package) -> Vec<String> {
        let mut packages = vec![
            package(CORE, &["bytes"]),
            package("justonce-embedded", &[CORE, "fjall"]),
            package("justonce-http", &[CORE]),
            package(TESTKIT, &[CORE]),
            package(FACADE, &[CORE, "justonce-embedded"]),
            package(SERVER, &[FACADE, "tokio"]),
        ];
        let bench = &["justonce-embedded", FACADE, TESTKIT];
        packages.push(Package {
            manifest: "bench/Cargo.toml".to_owned(),
            ..package("justonce-bench", bench)
        });
        packages.retain(|package| package.name != changed.name);
        packages.push(changed);
        let violations = check_dependencies(&packages, &|_| None);
        violations.into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn the_lawful_workspace_passes() {
        assert_eq!(breaches(package(CORE, &[])), [""; 0]);
        assert_eq!(breaches(package(FACADE, &[CORE, "justonce-http"])), [""; 0]);
    }

    #[test]
    fn every_part_of_the_law_can_be_broken() {
        for (name, on) in [
            (CORE, FACADE),
            (CORE, TESTKIT),
            ("justonce-http", "justonce-embedded"),
            ("justonce-http", FACADE),
            (TESTKIT, "justonce-embedded"),
            (SERVER, CORE),
            (FACADE, TESTKIT),
            (FACADE, SERVER),
            (FACADE, "justonce-bench"),
        ] {
            let breaches = breaches(package(name, &[on]));
            assert_eq!(breaches.len(), 1, "{name} on {on}");
            assert!(breaches[0].starts_with(&format!("`{name}` depends on `{on}`: ")));
        }
    }

    #[test]
    fn the_line_to_blame_is_found() {
        let packages = [package(CORE, &[FACADE]), package(FACADE, &[])];
        let manifest = "[dependencies]\njustonce-other = 1\njustonce.workspace = true\n";
        let violations = check_dependencies(&packages, &|_| Some(manifest));
        assert_eq!(violations[0].line, 3);
    }

    #[test]
    fn a_folder_has_its_packages_name() {
        let wrong = Package { manifest: "crates/core/Cargo.toml".into(), ..package(CORE, &[]) };
        let outside = Package { manifest: "bench/Cargo.toml".into(), ..package("other", &[]) };
        assert_eq!(check_names(&[package(CORE, &[]), outside]), []);
        let message = "crates/core/Cargo.toml:1: package `justonce-core` lives in folder `core`";
        assert_eq!(check_names(&[wrong])[0].to_string(), message);
    }

    #[test]
    fn metadata_is_read_without_what_tests_depend_on() {
        let metadata = r#"{"workspace_root": "/ws", "packages": [{
            "name": "a", "manifest_path": "/ws/crates/a/Cargo.toml", "dependencies": [
                {"name": "normal", "kind": null},
                {"name": "build", "kind": "build"},
                {"name": "test", "kind": "dev"}
            ]}]}"#;
        assert_eq!(packages(metadata).unwrap(), [package("a", &["normal", "build"])]);
        assert!(packages("{}").unwrap_err().to_string().contains("workspace_root"));
    }
}
