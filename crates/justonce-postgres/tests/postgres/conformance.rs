//! The PostgreSQL store against the rules.

use std::sync::Arc;

use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};
use justonce_testkit::conformance::{OnManualClock, Survival};

justonce_testkit::conformance!(postgres, || {
    let server = Arc::new(PostgresServer::start(PostgresOptions::default()).unwrap());
    OnManualClock::open(Survival::Durable, move |clock| {
        let server = Arc::clone(&server);
        async move { PostgresStore::builder(server.url()).clock(clock).open().await }
    })
});
