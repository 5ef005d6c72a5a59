//! How the properties are run.

use proptest::test_runner::{Config, FileFailurePersistence};

/// So many cases; a case that failed is kept beside the test and tried first from then on.
pub(crate) fn cases(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    }
}
