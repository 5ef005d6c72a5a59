//! The embedded store against the rules, on the clock that it has in production.

use std::sync::Arc;

use justonce_embedded::EmbeddedStore;
use justonce_testkit::conformance::{OnSystemClock, Survival};

justonce_testkit::conformance_in_production!(embedded, || {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    OnSystemClock::open(Survival::Durable, move || {
        let directory = Arc::clone(&directory);
        async move { Ok(EmbeddedStore::builder(directory.path()).open()?) }
    })
});
