//! One private server of each kind, to try things by hand: started, named, and ended with Ctrl-C.
//!
//! `cargo xtask services --start` installs what is missing and runs this.

use std::error::Error;

use justonce_testkit::servers::{
    PostgresOptions, PostgresServer, RedisCluster, RedisSentinel, RedisServer,
};
use nix::sys::signal::{SigSet, Signal};

/// How many replicas each primary has, how many sentinels watch, and how many primaries share a
/// cluster: the fewest with which one of them may be lost.
const REPLICAS: usize = 1;
const SENTINELS: usize = 3;
const PRIMARIES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let redis = RedisServer::start()?;
    let sentinel = RedisSentinel::start(REPLICAS, SENTINELS)?;
    let cluster = RedisCluster::start(PRIMARIES, REPLICAS)?;
    let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
    let postgres = PostgresServer::start(options)?;
    // The servers were started before: they must hear their own signals.
    let mut end = SigSet::empty();
    end.add(Signal::SIGINT);
    end.add(Signal::SIGTERM);
    end.thread_block()?;
    println!("Redis        {}", redis.url());
    println!("Sentinel     {}", sentinel.url());
    println!("Cluster      {}", cluster.url());
    println!("PostgreSQL   {}", postgres.url());
    println!("in tiers     tiered:{},{}", redis.url(), postgres.url());
    println!("\nTry one: cargo run -- serve --upstream http://127.0.0.1:9000 --store ADDRESS");
    println!("They are empty, private, and gone with Ctrl-C.");
    end.wait()?;
    Ok(())
}
