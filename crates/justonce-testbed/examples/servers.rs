//! Starts one private server of each kind, prints their addresses, and ends them with Ctrl-C.
//!
//! `cargo xtask services --start` installs what is missing and runs this.

use std::error::Error;

use justonce_testbed::{PostgresOptions, PostgresServer, RedisCluster, RedisSentinel, RedisServer};
use nix::sys::signal::{SigSet, Signal};

/// The fewest replicas, sentinels and primaries with which one of them may fail.
const REPLICAS: usize = 1;
const SENTINELS: usize = 3;
const PRIMARIES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let redis = RedisServer::start()?;
    let sentinel = RedisSentinel::start(REPLICAS, SENTINELS)?;
    let cluster = RedisCluster::start(PRIMARIES, REPLICAS)?;
    let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
    let postgres = PostgresServer::start(options)?;
    // Blocked after the servers were started, since they inherit the mask.
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
