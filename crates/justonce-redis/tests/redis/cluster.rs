//! A cluster that moves its slots, and loses a primary, while operations run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{Answer, Outcome, StoreErrorKind};
use justonce_redis::RedisStore;
use justonce_testbed::RedisCluster;
use tokio::task::JoinHandle;

use crate::world::{
    assert_passing, begin, begin_step, claim, complete, is_not_applied, plain, replayed, run,
    until_ok,
};

/// How many callers run operations while the cluster changes.
const CALLERS: usize = 8;
/// How many slots are moved each time, and with them some ten buckets.
const MOVED_SLOTS: u16 = 640;

/// Operations that run one after the other until they are told to stop, each begun twice.
struct Load {
    over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(store: &Arc<RedisStore>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let callers = (0..CALLERS)
            .map(|caller| {
                let (store, over) = (Arc::clone(store), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    for number in 0.. {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        let key = format!("caller-{caller}-{number}");
                        once(&store, &key).await;
                        done.push(key);
                    }
                    done
                })
            })
            .collect();
        Self { over, callers }
    }

    /// Ends it, and gives the keys of all operations that were acknowledged.
    async fn stop(self) -> Vec<String> {
        self.over.store(true, Ordering::Release);
        let mut done = Vec::new();
        for caller in self.callers {
            done.extend(caller.await.unwrap());
        }
        done
    }
}

/// Runs an operation to its end, through all errors that pass.
async fn once(store: &RedisStore, key: &str) {
    let operation = plain(key);
    loop {
        let step = begin_step(&operation);
        let answer = until_ok(|| store.apply(&step)).await;
        let Answer::Claimed(claimed) = answer else {
            panic!("{key} was claimed by nobody else, and heard {answer:?}");
        };
        match until_ok(|| complete(store, &operation, claimed.fence, key)).await {
            Answer::Applied => return,
            // The claim went with a primary.
            other => assert!(matches!(other, Answer::Lost(_)), "{other:?}"),
        }
    }
}

async fn open(cluster: &RedisCluster) -> Arc<RedisStore> {
    let builder = RedisStore::builder(cluster.url()).reply_timeout(Duration::from_millis(500));
    Arc::new(builder.open().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_may_move_while_operations_run() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let store = open(&cluster).await;
    for number in 0..200 {
        run(&store, &plain(&format!("before-{number}")), "done").await;
    }
    let load = Load::start(&store);
    let primaries = cluster.primaries().unwrap();
    tokio::task::block_in_place(|| {
        cluster.reshard(primaries[0], primaries[1], MOVED_SLOTS).unwrap();
        cluster.reshard(primaries[1], primaries[2], MOVED_SLOTS).unwrap();
    });
    let done = load.stop().await;
    assert!(done.len() > CALLERS, "{} operations", done.len());
    for key in &done {
        assert_eq!(replayed(&store, &plain(key)).await, Some(Outcome::bytes(key.clone())));
    }
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.completed.count, 200 + done.len() as u64);
    let mut listed = 0;
    let mut query = ListQuery { limit: 1000, ..ListQuery::default() };
    loop {
        let page = store.list(&query).await.unwrap();
        listed += page.records.len();
        match page.next {
            None => break,
            next => query.after = next,
        }
    }
    assert_eq!(listed, 200 + done.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_and_the_store_goes_on() {
    let cluster = RedisCluster::start(3, 1).unwrap();
    let store = open(&cluster).await;
    // What must not be lost is acknowledged by the replicas too.
    let careful = RedisStore::builder(cluster.url()).wait_replicas(1, Duration::from_secs(5));
    let careful = Arc::new(careful.open().await.unwrap());
    let kept: Vec<String> = (0..100).map(|number| format!("kept-{number}")).collect();
    let mut newest = justonce_core::Fence::NONE;
    for key in &kept {
        newest = newest.max(run(&careful, &plain(key), key).await);
    }
    drop(careful);
    let lost = cluster.primaries().unwrap()[0];
    let load = Load::start(&store);
    lost.kill();
    tokio::task::block_in_place(|| cluster.healed_without(lost)).unwrap();
    for key in &kept {
        let operation = plain(key);
        let answer = until_ok(|| begin(&store, &operation)).await;
        assert_eq!(answer.completed(), Some(&Outcome::bytes(key.clone())), "{key}");
    }
    let done = load.stop().await;
    assert!(done.len() > CALLERS, "{} operations", done.len());
    for number in 0..50 {
        let fence = claim(&store, &plain(&format!("after-{number}"))).await.fence;
        assert!(fence > newest, "{fence} after {newest}");
    }
    until_ok(|| store.ready()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_replica_a_lost_primary_closes_its_buckets_and_no_others() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
    }
    let store = open(&cluster).await;
    cluster.nodes()[0].kill();
    let (mut served, mut closed) = (0, 0);
    for number in 0..60 {
        match begin(&store, &plain(&format!("key-{number}"))).await {
            Ok(Answer::Claimed(_)) => served += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert_passing(&error);
                closed += 1;
            }
        }
    }
    assert!(served > 20 && closed > 5, "{served} served, {closed} closed");
    cluster.nodes()[0].restart().unwrap();
    until_ok(|| store.ready()).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let error = RedisStore::builder(cluster.nodes()[0].url()).open().await.unwrap_err();
    assert!(is_not_applied(&error, StoreErrorKind::Stopped), "{error:?}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}
