//! The table of the dependency law: each package's tier, and the exceptions.
//!
//! A package may depend on lower tiers only. [`super::law`] applies the table.

/// The tiers, from the lowest to the highest; the last two stand beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// The protocol. Depends on no crate of ours.
    Core,
    /// Utilities for connections. Depends on no crate of ours; all above the core may use it.
    Net,
    /// What is built on the protocol: sagas, messages, events.
    Domain,
    /// Stores and brokers: implement ports of the core and the domain.
    Store,
    /// What programs and their callers use: HTTP, client, macros.
    EntryPoint,
    /// The one crate that users add. Re-exports the libraries below it.
    Facade,
    /// Parts of the gateway and its operation.
    Gateway,
    /// The binary.
    Server,
    /// The published test kit: on core and domain, below nothing.
    Testkit,
    /// Unpublished packages: may depend on everything, nothing published depends on them.
    Tools,
}

/// Every package of the workspace. A new one gets its row here.
pub(crate) const TIERS: &[(&str, Tier)] = &[
    ("justonce-core", Tier::Core),
    ("justonce-net", Tier::Net),
    ("justonce-saga", Tier::Domain),
    ("justonce-embedded", Tier::Store),
    ("justonce-postgres", Tier::Store),
    ("justonce-redis", Tier::Store),
    ("justonce-http", Tier::EntryPoint),
    ("justonce", Tier::Facade),
    ("justonce-admin-api", Tier::Gateway),
    ("justonce-config", Tier::Gateway),
    ("justonce-demo", Tier::Gateway),
    ("justonce-jwt", Tier::Gateway),
    ("justonce-proxy", Tier::Gateway),
    ("justonce-server", Tier::Server),
    ("justonce-testkit", Tier::Testkit),
    ("justonce-bench", Tier::Tools),
    ("justonce-examples", Tier::Tools),
    ("justonce-fuzz", Tier::Tools),
    ("justonce-model", Tier::Tools),
    ("justonce-orders", Tier::Tools),
    ("justonce-powercut", Tier::Tools),
    ("justonce-simulation", Tier::Tools),
    ("justonce-testbed", Tier::Tools),
    ("xtask", Tier::Tools),
];

/// Dependencies within one tier, or on the test kit: which package, on which, and why. A row for a
/// package that does not exist is ignored.
pub(crate) const EXCEPTIONS: &[(&str, &str, &str)] =
    &[("justonce-demo", "justonce-testkit", "its verdict is the checker of histories")];

/// Why a package of one tier must not depend on one of another, if it must not.
pub(crate) fn refusal(from: Tier, on: Tier) -> Option<&'static str> {
    let (allowed, rule) = match (from, on) {
        (Tier::Tools, _) => (true, ""),
        (_, Tier::Tools) => (false, "only unpublished packages depend on unpublished packages"),
        (_, Tier::Testkit) => (false, "the test kit is for tests"),
        (Tier::Testkit, _) => (
            matches!(on, Tier::Core | Tier::Domain),
            "the test kit depends on core and domain only",
        ),
        (Tier::Core | Tier::Net, _) => (false, "core and net depend on no crate of ours"),
        _ if from == on => (false, "a dependency within a tier needs a row with its reason"),
        _ => (on < from, "a package depends on lower tiers only"),
    };
    (!allowed).then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_tiers_are_allowed_and_higher_ones_are_not() {
        assert_eq!(refusal(Tier::Store, Tier::Domain), None);
        assert_eq!(refusal(Tier::Server, Tier::Core), None);
        assert!(refusal(Tier::Domain, Tier::Store).unwrap().contains("lower tiers"));
        assert!(refusal(Tier::Store, Tier::Store).unwrap().contains("within a tier"));
    }

    #[test]
    fn net_is_a_leaf_for_all_above_the_core() {
        assert!(refusal(Tier::Core, Tier::Net).is_some());
        assert!(refusal(Tier::Net, Tier::Core).is_some());
        assert_eq!(refusal(Tier::Domain, Tier::Net), None);
    }

    #[test]
    fn the_test_kit_and_the_tools_stand_beside_the_others() {
        assert_eq!(refusal(Tier::Testkit, Tier::Domain), None);
        assert!(refusal(Tier::Testkit, Tier::Store).is_some());
        assert!(refusal(Tier::Facade, Tier::Testkit).is_some());
        assert!(refusal(Tier::Testkit, Tier::Tools).is_some());
        assert_eq!(refusal(Tier::Tools, Tier::Server), None);
    }

    #[test]
    fn no_package_has_two_rows() {
        let mut names: Vec<_> = TIERS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TIERS.len());
    }
}
