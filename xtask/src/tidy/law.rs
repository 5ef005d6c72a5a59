//! Rule: the dependency law, and that a crate's folder has the crate's name.
//!
//! The tiers are in [`super::tiers`]. Tests may depend on everything, but a published package must
//! not name a version of what is published after it.

use super::packages::{Dependency, Package};
use super::tiers::{EXCEPTIONS, TIERS, Tier, refusal};
use super::violation::Violation;

/// Where a missing row belongs.
const TABLE: &str = "xtask/src/tidy/tiers.rs";

/// The table of the law: tiers, and exceptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law<'a> {
    tiers: &'a [(&'a str, Tier)],
    exceptions: &'a [(&'a str, &'a str, &'a str)],
}

/// The law of this workspace.
pub(crate) const LAW: Law<'static> = Law { tiers: TIERS, exceptions: EXCEPTIONS };

/// Checks that each folder in `crates/` is named after its package.
pub(crate) fn check_names(packages: &[Package]) -> Vec<Violation> {
    packages
        .iter()
        .filter_map(|package| {
            let folder = package.folder().strip_prefix("crates/")?;
            let message = format!("package `{}` lives in folder `{folder}`", package.name);
            (folder != package.name).then(|| Violation::new(&package.manifest, 1, message))
        })
        .collect()
}

impl Law<'_> {
    /// Checks every dependency. The manifests' texts serve only to find the line.
    pub(crate) fn check<'a>(
        &self,
        packages: &[Package],
        manifest: &dyn Fn(&str) -> Option<&'a str>,
    ) -> Vec<Violation> {
        let mut violations = Vec::new();
        for package in packages {
            let mut report = |dependency: &str, message: String| {
                let line = manifest(&package.manifest).map_or(1, |text| line_of(text, dependency));
                violations.push(Violation::new(&package.manifest, line, message));
            };
            let Some(tier) = self.tier(&package.name) else {
                let message = format!("`{}` has no tier: add a row to {TABLE}", package.name);
                report("", message);
                continue;
            };
            if package.published && tier == Tier::Tools {
                report(
                    "",
                    format!("`{}` is unpublished by its tier: `publish = false`", package.name),
                );
            }
            for dependency in &package.dependencies {
                let Some(ours) = packages.iter().find(|other| other.name == dependency.name) else {
                    continue;
                };
                if let Some(rule) = self.broken_rule(package, tier, dependency, ours) {
                    let on = &dependency.name;
                    report(on, format!("`{}` depends on `{on}`: {rule}", package.name));
                }
            }
        }
        violations.extend(self.stale(packages));
        violations
    }

    fn tier(&self, name: &str) -> Option<Tier> {
        self.tiers.iter().find(|(known, _)| *known == name).map(|(_, tier)| *tier)
    }

    /// The part of the law that one dependency breaks.
    fn broken_rule(
        &self,
        package: &Package,
        tier: Tier,
        dependency: &Dependency,
        on: &Package,
    ) -> Option<&'static str> {
        let excepted = self.exceptions.iter().any(|(a, b, _)| *a == package.name && *b == on.name);
        let on_tier = self.tier(&on.name)?;
        let refused = refusal(tier, on_tier)
            .filter(|_| !(excepted && (tier == on_tier || on_tier == Tier::Testkit)));
        if dependency.dev {
            // Cargo leaves a test dependency without a version out of the package. One with a
            // version must be in the registry first, so two crates could need each other.
            let rule = "tests name what is not of a lower tier by `path`, without a version";
            return refused.filter(|_| package.published && dependency.versioned).map(|_| rule);
        }
        let private = package.published && !on.published;
        refused.or(private.then_some("a published crate cannot need an unpublished one"))
    }

    /// Exceptions that nothing uses.
    fn stale(&self, packages: &[Package]) -> Vec<Violation> {
        let unused = self.exceptions.iter().filter(|(from, on, _)| {
            let package = packages.iter().find(|it| it.name == *from);
            package.is_some_and(|it| !it.needs().any(|name| name == *on))
        });
        unused
            .map(|(from, on, _)| {
                let message = format!("`{from}` does not depend on `{on}`: remove the exception");
                Violation::new(TABLE, 1, message)
            })
            .collect()
    }
}

/// The first line that begins with the dependency's name, or the first line.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        let line = line.trim_start();
        let name = line.strip_prefix("[dependencies.").unwrap_or(line);
        let rest = name.strip_prefix(dependency).filter(|_| !dependency.is_empty());
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=', ']']))
    };
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIERS: &[(&str, Tier)] = &[
        ("core", Tier::Core),
        ("saga", Tier::Domain),
        ("redis", Tier::Store),
        ("disk", Tier::Store),
        ("testkit", Tier::Testkit),
        ("bench", Tier::Tools),
    ];

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency { name: (*name).into(), ..Dependency::default() };
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            published: name != "bench",
            dependencies: dependencies.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    fn breaches(law: Law<'_>, changed: Package) -> Vec<String> {
        let mut packages = vec![
            package("core", &["bytes"]),
            package("saga", &["core"]),
            package("redis", &["core", "saga"]),
            package("disk", &["core"]),
            package("testkit", &["core", "saga"]),
            package("bench", &["disk", "testkit"]),
        ];
        packages.retain(|package| package.name != changed.name);
        packages.push(changed);
        law.check(&packages, &|_| None).into_iter().map(|found| found.message).collect()
    }

    const LAW: Law<'static> = Law { tiers: TIERS, exceptions: &[] };

    #[test]
    fn lower_tiers_and_libraries_of_others_are_free() {
        assert_eq!(breaches(LAW, package("redis", &["core", "saga", "tokio"])), [""; 0]);
    }

    #[test]
    fn every_part_of_the_law_can_be_broken() {
        let cases = [
            ("core", "saga"),
            ("saga", "redis"),
            ("redis", "disk"),
            ("testkit", "disk"),
            ("disk", "testkit"),
            ("disk", "bench"),
        ];
        for (name, on) in cases {
            let breaches = breaches(LAW, package(name, &[on]));
            assert_eq!(breaches.len(), 1, "{name} on {on}");
            assert!(breaches[0].starts_with(&format!("`{name}` depends on `{on}`: ")));
        }
    }

    #[test]
    fn a_package_needs_a_row() {
        let message = format!("`new` has no tier: add a row to {TABLE}");
        assert_eq!(breaches(LAW, package("new", &[])), [message]);
        let published = Package { published: true, ..package("bench", &[]) };
        assert!(breaches(LAW, published)[0].contains("unpublished by its tier"));
    }

    #[test]
    fn an_exception_holds_while_it_is_used() {
        let law = Law { exceptions: &[("redis", "disk", "why")], ..LAW };
        assert_eq!(breaches(law, package("redis", &["disk"])), [""; 0]);
        assert!(breaches(law, package("redis", &["core"]))[0].contains("remove the exception"));
    }

    #[test]
    fn tests_of_published_crates_name_no_versions_of_ours() {
        let with = |versioned| {
            let tested = Dependency { name: "disk".into(), dev: true, versioned };
            Package { dependencies: vec![tested], ..package("saga", &[]) }
        };
        assert_eq!(breaches(LAW, with(false)), [""; 0]);
        assert!(breaches(LAW, with(true))[0].contains("without a version"));
    }

    #[test]
    fn the_line_is_found() {
        let packages = [package("core", &["saga"]), package("saga", &[])];
        let manifest = "[dependencies]\nsaga-other = 1\nsaga.workspace = true\n";
        assert_eq!(LAW.check(&packages, &|_| Some(manifest))[0].line, 3);
    }

    #[test]
    fn a_folder_has_its_packages_name() {
        let wrong = Package { manifest: "crates/a/Cargo.toml".into(), ..package("core", &[]) };
        let outside = Package { manifest: "bench/Cargo.toml".into(), ..package("other", &[]) };
        assert_eq!(check_names(&[package("core", &[]), outside]), []);
        let message = "crates/a/Cargo.toml:1: package `core` lives in folder `a`";
        assert_eq!(check_names(&[wrong])[0].to_string(), message);
    }
}
