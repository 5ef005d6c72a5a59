//! Rule: what is published describes itself and carries its licences.

use super::packages::Package;
use super::violation::Violation;

/// Files in the folder of every published package; links to those of the root will do.
const FILES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Fields of a manifest that a registry shows.
pub(crate) const FIELDS: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];

/// Checks one package.
pub(crate) fn check(package: &Package, exists: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    if !package.published {
        return Vec::new();
    }
    let fields = FIELDS.iter().filter(|name| !package.described.contains(name));
    let fields = fields.map(|name| format!("`{name}` is missing: `{name}.workspace = true`"));
    let files = FILES.iter().filter(|name| !exists(&format!("{}/{name}", package.folder())));
    let files = files.map(|name| format!("`{name}` is missing: link it to that of the root"));
    fields.chain(files).map(|message| Violation::new(&package.manifest, 1, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_package_has_every_field_and_file() {
        let mut package = Package { manifest: "a/Cargo.toml".into(), ..Package::default() };
        assert_eq!(check(&package, &|_| false), []);
        package.published = true;
        package.described = vec!["description", "license", "readme", "keywords"];
        let found = check(&package, &|path| path == "a/LICENSE-MIT");
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let licence = "a/Cargo.toml:1: `LICENSE-APACHE` is missing: link it to that of the root";
        let field = "a/Cargo.toml:1: `categories` is missing: `categories.workspace = true`";
        assert_eq!(found, [field, licence]);
    }
}
