//! The layer on axum with Redis, beside the crate `idempotent` on the same server.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use justonce_testbed::RedisServer;

use super::run::{SLICE, StoresArgs, add_ratio};
use crate::gateway::{Askers, Load, Process, load, prime};
use crate::report::{Report, median};

/// Who asks for operations, as in the benchmark of the gateway.
const ASKERS: Askers = Askers { threads: 1, connections: 64 };
/// Who asks for duplicates. One thread asks for fewer than the near cache can answer: a seventh of
/// the machine would idle.
const DUPLICATE_ASKERS: Askers = Askers { threads: 2, connections: 64 };

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
    let urls = [&plain.url, &peer.url];
    let rounds = in_turn(args, server, directory, Load::FirstTime, urls)?;
    let pairs = rounds.iter().map(|[ours, theirs]| (*ours, *theirs)).collect();
    add_in_rounds(report, "layer with Redis: first-time to `idempotent`", pairs, 1.2);
    let urls = [&plain.url, &near.url, &peer.url];
    let rounds = in_turn(args, server, directory, Load::Duplicates, urls)?;
    let pairs = rounds.iter().map(|[ours, _, theirs]| (*ours, *theirs)).collect();
    add_in_rounds(report, "layer with Redis: duplicates to `idempotent`", pairs, 1.0);
    let pairs = rounds.iter().map(|[_, cached, theirs]| (*cached, *theirs)).collect();
    let what = "layer with Redis and the near cache: duplicates to `idempotent`";
    add_in_rounds(report, what, pairs, 1.5);
    Ok(())
}

/// Adds the median ratio of rounds: in each of them both met the same moods of the machine.
fn add_in_rounds(report: &mut Report, what: &str, pairs: Vec<(f64, f64)>, least: f64) {
    let ratio = median(pairs.iter().map(|(ours, theirs)| ours / theirs).collect());
    let (ours, theirs) = pairs.into_iter().unzip();
    add_ratio(report, what, ratio, [median(ours), median(theirs)], least);
}

/// The rates of some servers under one load, round by round. Each round begins with an empty Redis.
/// In it the servers are loaded in slices of a second in turn, every other time backwards, so that
/// all meet the same moods of the machine.
fn in_turn<const SERVERS: usize>(
    args: &StoresArgs,
    server: &RedisServer,
    directory: &Path,
    what: Load,
    urls: [&String; SERVERS],
) -> Result<Vec<[f64; SERVERS]>> {
    let askers = if what == Load::Duplicates { DUPLICATE_ASKERS } else { ASKERS };
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        server.cli(&["FLUSHALL"])?;
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
                *sum += load(directory, url, what, &name, askers, SLICE)?.rate;
            }
        }
        rounds.push(sums.map(|sum| sum / args.seconds.max(1) as f64));
    }
    Ok(rounds)
}
