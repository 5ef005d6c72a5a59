//! The layer on axum with Redis, beside the crate `idempotent` on the same server.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use justonce_testkit::servers::RedisServer;

use super::run::{SLICE, StoresArgs, add};
use crate::gateway::{Load, Process, load, prime};
use crate::report::{Report, median};

/// How many connections at once.
const CONNECTIONS: u32 = 64;

pub(super) fn measure(
    args: &StoresArgs,
    server: &RedisServer,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let Some(peer) = &args.peer else {
        println!("the peer is left out: `cargo xtask bench stores` builds it");
        return Ok(());
    };
    let exe = std::env::current_exe()?;
    let ours = |more: &[&str]| {
        let redis = ["layer", "--redis", &server.url()];
        Process::announced(Command::new(&exe).args(redis).args(more))
    };
    let (plain, near) = (ours(&[])?, ours(&["--near"])?);
    // The same server, but a database of its own: the peer lets its keys expire, and where one key
    // does, Redis looks for an expiry of all.
    let peer = Process::announced(Command::new(peer).arg(format!("{}/1", server.url())))?;
    let [ours, theirs] = in_turn(args, directory, Load::FirstTime, [&plain.url, &peer.url])?;
    add(report, "layer with Redis: first-time to `idempotent`", ours, theirs, 1.2);
    let urls = [&plain.url, &near.url, &peer.url];
    let [ours, cached, theirs] = in_turn(args, directory, Load::Duplicates, urls)?;
    add(report, "layer with Redis: duplicates to `idempotent`", ours, theirs, 1.0);
    let what = "layer with Redis and the near cache: duplicates to `idempotent`";
    add(report, what, cached, theirs, 1.5);
    Ok(())
}

/// The median rates of some servers under one load. In a round they are loaded in slices of a
/// second in turn, every other time backwards, so that all meet the same moods of the machine.
fn in_turn<const SERVERS: usize>(
    args: &StoresArgs,
    directory: &Path,
    what: Load,
    urls: [&String; SERVERS],
) -> Result<[f64; SERVERS]> {
    let mut rates = [const { Vec::new() }; SERVERS];
    for round in 0..args.rounds {
        let mut sums = [0.0; SERVERS];
        for slice in 0..args.seconds {
            let mut turn: Vec<_> = urls.into_iter().zip(&mut sums).enumerate().collect();
            if slice % 2 == 1 {
                turn.reverse();
            }
            for (server, (url, sum)) in turn {
                // Each has keys of its own; a replay must have been executed before.
                let name = format!("{what:?}-{server}-{round}-{slice}");
                if what == Load::Duplicates {
                    prime(url, &name)?;
                }
                *sum += load(directory, url, what, &name, CONNECTIONS, SLICE)?.rate;
            }
        }
        for (rates, sum) in rates.iter_mut().zip(sums) {
            rates.push(sum / args.seconds.max(1) as f64);
        }
    }
    Ok(rates.map(median))
}
