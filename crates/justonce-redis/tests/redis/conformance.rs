//! The Redis store against the rules.

use std::sync::Arc;

use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use justonce_testkit::conformance::{OnManualClock, Survival};

justonce_testkit::conformance!(redis, || {
    let server = Arc::new(RedisServer::start().unwrap());
    OnManualClock::open(Survival::Durable, move |clock| {
        let server = Arc::clone(&server);
        async move { RedisStore::builder(server.url()).clock(clock).open().await }
    })
});
