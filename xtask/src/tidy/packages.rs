//! The packages of the workspace, as `cargo metadata` describes them.

use anyhow::{Context, Result};
use serde_json::Value;

use super::published::FIELDS;
use crate::cmd::Cmd;

/// A member of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    /// Its manifest, relative to the workspace root.
    pub(crate) manifest: String,
    /// The manifest's sentence about it.
    pub(crate) description: String,
    /// The oldest compiler that it allows.
    pub(crate) rust_version: String,
    /// Whether it may be published.
    pub(crate) published: bool,
    /// The fields that describe it in a registry, as far as they are set.
    pub(crate) described: Vec<&'static str>,
    /// The root files of its library and its programs, relative to the workspace root.
    pub(crate) roots: Vec<String>,
    /// What it depends on, once for each table of its manifest.
    pub(crate) dependencies: Vec<Dependency>,
    /// The names of its features, without `default`.
    pub(crate) features: Vec<String>,
}

/// A dependency of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) name: String,
    /// Whether only tests need it.
    pub(crate) dev: bool,
    /// Whether the manifest names a version.
    pub(crate) versioned: bool,
}

impl Package {
    /// The package's folder, relative to the workspace root.
    pub(crate) fn folder(&self) -> &str {
        self.manifest.trim_end_matches("Cargo.toml").trim_end_matches('/')
    }

    /// What the package needs to be built.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &str> {
        self.dependencies.iter().filter(|it| !it.dev).map(|it| it.name.as_str())
    }
}

/// Reads the workspace's packages, sorted by manifest.
pub(crate) fn read() -> Result<Vec<Package>> {
    parse(&Cmd::new("cargo", &["metadata", "--no-deps", "--format-version", "1"]).stdout()?)
}

fn parse(metadata: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let root = text(&metadata, "workspace_root")?.replace('\\', "/");
    let packages = list(&metadata, "packages")?.iter().map(|value| package(value, &root));
    let mut packages = packages.collect::<Result<Vec<_>>>()?;
    packages.sort_by(|a, b| a.manifest.cmp(&b.manifest));
    Ok(packages)
}

fn package(value: &Value, root: &str) -> Result<Package> {
    let relative = |path: &str| {
        let path = path.replace('\\', "/");
        path.strip_prefix(root).unwrap_or(&path).trim_start_matches('/').to_owned()
    };
    let optional = |name| value.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let mut roots = Vec::new();
    for target in list(value, "targets")? {
        let kinds = list(target, "kind")?;
        if kinds.iter().any(|kind| ["lib", "bin", "proc-macro"].iter().any(|it| kind == it)) {
            roots.push(relative(text(target, "src_path")?));
        }
    }
    let mut dependencies = Vec::new();
    for dependency in list(value, "dependencies")? {
        dependencies.push(Dependency {
            name: text(dependency, "name")?.to_owned(),
            dev: dependency.get("kind").and_then(Value::as_str) == Some("dev"),
            versioned: text(dependency, "req")? != "*",
        });
    }
    let is_set = |name: &&str| match value.get(*name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(values)) => !values.is_empty(),
        _ => false,
    };
    let features = value.get("features").and_then(Value::as_object);
    let features = features.into_iter().flat_map(|map| map.keys());
    Ok(Package {
        name: text(value, "name")?.to_owned(),
        manifest: relative(text(value, "manifest_path")?),
        description: optional("description"),
        rust_version: optional("rust_version"),
        // Metadata lists the registries a package may go to; none is the empty list.
        published: value.get("publish").and_then(Value::as_array).is_none_or(|to| !to.is_empty()),
        described: FIELDS.into_iter().filter(is_set).collect(),
        roots,
        dependencies,
        features: features.filter(|name| *name != "default").cloned().collect(),
    })
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    let text = value.get(name).and_then(Value::as_str);
    text.with_context(|| format!("cargo metadata has no text `{name}`"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    let list = value.get(name).and_then(Value::as_array);
    list.with_context(|| format!("cargo metadata has no list `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read() {
        let metadata = r#"{"workspace_root": "/ws", "packages": [{
            "name": "a", "manifest_path": "/ws/crates/a/Cargo.toml", "publish": [],
            "description": "Does a.", "features": {"default": ["x"], "x": []},
            "targets": [{"kind": ["lib"], "src_path": "/ws/crates/a/src/lib.rs"},
                        {"kind": ["test"], "src_path": "/ws/crates/a/tests/t.rs"}],
            "dependencies": [{"name": "b", "kind": null, "req": "^1"},
                             {"name": "c", "kind": "dev", "req": "*"}]}]}"#;
        let packages = parse(metadata).unwrap();
        let [a] = packages.as_slice() else { panic!("one package") };
        assert_eq!((a.name.as_str(), a.folder(), a.published), ("a", "crates/a", false));
        assert_eq!(a.description, "Does a.");
        assert_eq!(a.described, ["description"]);
        assert_eq!(a.roots, ["crates/a/src/lib.rs"]);
        assert_eq!(a.features, ["x"]);
        assert_eq!(a.needs().collect::<Vec<_>>(), ["b"]);
        assert_eq!(a.dependencies[1], Dependency { name: "c".into(), dev: true, versioned: false });
        assert!(parse("{}").unwrap_err().to_string().contains("workspace_root"));
    }

    #[test]
    fn a_package_is_published_unless_it_says_no() {
        let metadata = r#"{"workspace_root": "/ws", "packages": [{
            "name": "a", "manifest_path": "/ws/Cargo.toml", "publish": null,
            "targets": [], "dependencies": []}]}"#;
        let packages = parse(metadata).unwrap();
        assert!(packages[0].published);
        assert_eq!(packages[0].folder(), "");
    }
}
