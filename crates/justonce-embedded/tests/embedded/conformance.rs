//! The embedded store against the rules.

use std::sync::Arc;

use justonce_embedded::EmbeddedStore;
use justonce_testkit::conformance::{OnManualClock, Survival};

justonce_testkit::conformance!(embedded, || {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    OnManualClock::open(Survival::Durable, move |clock| {
        let directory = Arc::clone(&directory);
        async move { Ok(EmbeddedStore::builder(directory.path()).clock(clock).open()?) }
    })
});
