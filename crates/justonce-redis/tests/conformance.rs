//! The Redis store against the rules.

use std::sync::Arc;

use justonce_redis::RedisStore;
use justonce_testkit::conformance::{OnManualClock, Survival};
use justonce_testkit::servers::RedisServer;

justonce_testkit::conformance!(redis, || {
    let server = Arc::new(RedisServer::start().unwrap());
    OnManualClock::open(Survival::Durable, move |clock| {
        let server = Arc::clone(&server);
        async move { RedisStore::builder(server.url()).clock(clock).open().await }
    })
});
