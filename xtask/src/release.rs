//! `cargo xtask release-check`: whether what is to be published can be built from its packages.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::cache;
use crate::cmd::Cmd;
use crate::services;
use crate::tidy::packages::{self, Package};

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Check only this; everything without any
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The compiler in use is the oldest one that the manifests allow
    Toolchain,
    /// Every published crate compiles with each of its features alone, and with none
    Features,
    /// Every published crate is packaged, and built from its package
    Package,
    /// Licences, sources and duplicates of all dependencies; installs cargo-deny if it is missing
    Deny,
}

/// Runs the parts that are asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let packages = packages::read()?;
    let all = Part::value_variants();
    let parts = if options.parts.is_empty() { all } else { options.parts.as_slice() };
    for part in parts {
        match part {
            Part::Toolchain => {
                check_toolchain(&packages, &Cmd::new("rustc", &["--version"]).stdout()?)?;
            }
            Part::Features => {
                for check in feature_checks(&packages) {
                    check.run()?;
                }
            }
            Part::Package => {
                let target = cache::target_dir(|name| std::env::var(name).ok()).join("packages");
                package(&packages, &target.to_string_lossy()).run()?;
            }
            Part::Deny => deny()?,
        }
    }
    Ok(())
}

/// Compares `rust-version` with what `rustc --version` says: only a build by the oldest compiler
/// proves that it is enough.
fn check_toolchain(packages: &[Package], rustc: &str) -> Result<()> {
    let promised = packages.iter().map(|package| package.rust_version.as_str()).max();
    let promised = promised.filter(|it| !it.is_empty()).context("there is no `rust-version`")?;
    let used = rustc.split_whitespace().nth(1).unwrap_or_default();
    if !used.strip_prefix(promised).is_some_and(|rest| rest.starts_with('.')) {
        bail!("`rust-version` is {promised}, but rustc is {used}: use that, or raise it");
    }
    println!("rustc {used} is the promised {promised}");
    Ok(())
}

/// One check without features for each published package, and one for each of its features.
fn feature_checks(packages: &[Package]) -> Vec<Cmd> {
    let mut checks = Vec::new();
    for package in packages.iter().filter(|package| package.published) {
        let words = ["check", "--locked", "--no-default-features", "--package", &package.name];
        let alone = Cmd::new("cargo", &words);
        let each = package.features.iter().map(|name| alone.clone().args(&["--features", name]));
        checks.extend(each);
        checks.push(alone);
    }
    checks
}

/// All published packages at once: cargo builds each on the packages of the others.
fn package(packages: &[Package], target: &str) -> Cmd {
    let published = packages.iter().filter(|package| package.published);
    let names: Vec<_> = published.flat_map(|it| ["--package", it.name.as_str()]).collect();
    // What is checked is the tree as it is, committed or not. A named target directory is shared by
    // all packages and kept: else each would build all its dependencies, and every time.
    Cmd::new("cargo", &["package", "--locked", "--allow-dirty"])
        .args(&names)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
}

fn deny() -> Result<()> {
    services::run_for_releases()?;
    Cmd::new("cargo", &["deny", "check", "bans", "licenses", "sources"]).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> [Package; 2] {
        let features = vec!["x".to_owned()];
        let library = Package { name: "a".into(), published: true, features, ..Package::default() };
        [library, Package { name: "tool".into(), ..Package::default() }]
    }

    #[test]
    fn the_compiler_is_the_promised_one_up_to_its_patch() {
        let package = Package { rust_version: "1.95".into(), ..Package::default() };
        let check = |rustc| check_toolchain(std::slice::from_ref(&package), rustc).is_ok();
        assert!(check("rustc 1.95.0 (59807616e 2026-04-14)"));
        assert!(check("rustc 1.95.1"));
        assert!(!check("rustc 1.96.0"));
        assert!(!check("rustc 1.950.0"));
        assert!(check_toolchain(&[], "rustc 1.95.0").is_err());
    }

    #[test]
    fn each_feature_of_what_is_published_is_checked_alone() {
        let checks: Vec<_> = feature_checks(&workspace()).iter().map(Cmd::to_string).collect();
        let without = "cargo check --locked --no-default-features --package a";
        assert_eq!(checks, [format!("{without} --features x"), without.to_owned()]);
    }

    #[test]
    fn only_what_is_published_is_packaged() {
        let line = package(&workspace(), "/t/packages").to_string();
        assert!(line.starts_with("CARGO_TARGET_DIR=/t/packages "), "{line}");
        assert!(line.ends_with(" cargo package --locked --allow-dirty --package a"), "{line}");
    }
}
