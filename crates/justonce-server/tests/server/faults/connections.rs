//! PostgreSQL takes connections away, or has none to give.

use justonce_testbed::{PostgresOptions, PostgresServer};
use tokio::task::block_in_place;

use crate::faults::stage::Stage;

/// Effects before and after each fault.
const WORK: u64 = 100;
/// How often all connections are ended.
const ROUNDS: u32 = 15;
/// Ends every connection of a gateway.
const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                         WHERE application_name = 'justonce'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_are_ended_again_and_again() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let stage = Stage::new(&server.url(), 2, "").await;
    let load = stage.load();
    for _ in 0..ROUNDS {
        stage.works(WORK / 5).await;
        let ended = block_in_place(|| server.psql(TERMINATE).unwrap());
        assert!(ended.parse::<u32>().unwrap() > 0, "no connection was ended");
    }
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}

/// Fewer connections than the gateways want, and for a while none at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_connections_left() {
    let options = PostgresOptions { max_connections: 12, ..PostgresOptions::default() };
    let server = PostgresServer::start(options).unwrap();
    let order = |sql: &str| block_in_place(|| insist(&server, sql));
    // Some connections are kept for the superuser, who must get in here.
    order("CREATE ROLE gateway LOGIN");
    order("GRANT CREATE ON DATABASE postgres TO gateway");
    let stage = Stage::new(&server.url().replace("postgres@", "gateway@"), 3, "").await;
    let load = stage.load();
    stage.works(WORK).await;
    order("ALTER ROLE gateway CONNECTION LIMIT 0");
    order(TERMINATE);
    stage.refuses("no-connection").await;
    order("ALTER ROLE gateway CONNECTION LIMIT -1");
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}

/// Gateways that are about to be refused take even the superuser's connections for a moment.
fn insist(server: &PostgresServer, sql: &str) {
    const TRIES: u32 = 200;
    let mut last = String::new();
    for _ in 0..TRIES {
        match server.psql(sql) {
            Ok(_) => return,
            Err(error) => last = error.to_string(),
        }
        assert!(last.contains("too many clients"), "{last}");
    }
    panic!("the superuser never got in: {last}");
}
