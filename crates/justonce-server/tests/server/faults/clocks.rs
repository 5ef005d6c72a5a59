//! Gateways whose clocks are five minutes fast and slow: leases, replays and retention go by the
//! clock of the store.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use justonce_testkit::history::{Guarantee, Reply, judge};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::faults::client::Heard;
use crate::faults::stage::Stage;
use crate::faults::store::Store;

/// Where the library is, one folder for each kind of machine.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketime.so.1";
/// The gateways: one fast, one slow, one right.
const CLOCKS: [&str; 3] = ["+5m", "-5m", "+0"];
const FAST: usize = 0;
const SLOW: usize = 1;
/// By how many seconds the clocks above are wrong, and how far an answer may be from that.
const SKEWS: [i64; 3] = [300, -300, 0];
const TOLERANCE: i64 = 60;

const LEASE: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(4);
const SETTINGS: &str = "[defaults]\nlease = '1s'\nretention = '4s'\n";

/// A gateway with its clock set forward or back; its timers run as usual.
fn clock(by: &'static str) -> impl Fn(&mut Command) {
    let places = std::fs::read_dir(LIBRARIES).unwrap().flatten();
    let found = places.map(|place| place.path().join(LIBRARY)).find(|path| path.is_file());
    let library: PathBuf = found.expect("run `cargo xtask services`, or install libfaketime");
    move |command| {
        command.env("LD_PRELOAD", &library).env("FAKETIME", by);
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
}

/// The clock of the gateway that answered.
fn date(heard: &Heard) -> i64 {
    let text = heard.headers["date"].to_str().unwrap();
    // The format is that of RFC 2822 with another name of the time zone.
    let seconds = Command::new("date").args(["--utc", "+%s", "--date", text]).output().unwrap();
    String::from_utf8(seconds.stdout).unwrap().trim().parse().unwrap()
}

fn retry_after(heard: &Heard) -> u64 {
    heard.headers["retry-after"].to_str().unwrap().parse().unwrap()
}

/// The clocks of the gateways really are wrong.
async fn clocks_are_wrong(stage: &Stage) {
    // The first answer has the date of the service.
    stage.client(FAST).ask("first", 0).await;
    let mut dates = Vec::new();
    for gateway in 0..CLOCKS.len() {
        dates.push(date(&stage.client(gateway).ask("first", 0).await));
    }
    for (date, skew) in dates.iter().zip(SKEWS) {
        let off = date - dates[2] - skew;
        assert!(off.abs() < TOLERANCE, "a clock is wrong by {off} s more than it should be");
    }
}

/// A claim of the fast gateway is alive for the slow one, and the other way round, for as long as
/// it is renewed; no clock makes it lapse, and none makes it last.
async fn lease(stage: &Stage, owner: usize, other: usize) {
    let key = format!("leased-by-{owner}");
    let held = stage.ledger.hold(&key);
    let (mut client, asked) = (stage.client(owner), key.clone());
    let owning = tokio::spawn(async move { client.ask(&asked, 0).await });
    // The clocks' own operation, and those of both owners.
    stage.seen("the effects", |tally| tally.effects >= 3).await;
    let end = Instant::now() + 2 * LEASE + LEASE / 2;
    let mut client = stage.client(other);
    while Instant::now() < end {
        let heard = client.ask(&key, 0).await;
        assert_eq!(heard.reply, Reply::InFlight);
        assert!(retry_after(&heard) <= LEASE.as_secs(), "{:?}", heard.headers);
        sleep(LEASE / 4).await; // tidy: allow-sleep: a lease is watched while it runs
    }
    held.let_go();
    assert!(matches!(owning.await.unwrap().reply, Reply::Acknowledged { .. }));
}

/// Outcomes are replayed by every gateway while the retention runs and by none after it.
async fn retention(stage: &Stage, owner: usize, other: usize) {
    let key = format!("kept-by-{owner}");
    let before = Instant::now();
    let first = stage.client(owner).ask(&key, 0).await.reply;
    let after = Instant::now();
    let Reply::Acknowledged { answer, .. } = first else { panic!("{first:?}") };
    for gateway in 0..CLOCKS.len() {
        let reply = stage.client(gateway).ask(&key, 0).await.reply;
        // On a machine that is busy the retention may be over by now.
        assert!(reply == Reply::replay(answer.clone()) || before.elapsed() > RETENTION);
    }
    sleep_until(after + RETENTION).await; // tidy: allow-sleep: a retention ends by time
    // The clock of the store decides when exactly, so look until it does, but not for long.
    let mut client = stage.client(other);
    let again = async {
        loop {
            match client.ask(&key, 0).await.reply {
                Reply::Acknowledged { replayed: true, .. } => {}
                reply => break reply,
            }
        }
    };
    let again = timeout(2 * RETENTION, again).await.expect("the retention does not end");
    assert!(matches!(again, Reply::Acknowledged { replayed: false, .. }), "{again:?}");
}

async fn by_the_stores_clock(store: Store) {
    let changes: Vec<_> = CLOCKS.into_iter().map(clock).collect();
    let stage = Stage::with(&store.url(), SETTINGS, changes).await;
    clocks_are_wrong(&stage).await;
    tokio::join!(lease(&stage, FAST, SLOW), lease(&stage, SLOW, FAST));
    let verdict = judge(&stage.recorder.history(), Guarantee::AtMostOnce);
    assert!(verdict.is_fine(), "{verdict}");
    assert_eq!((verdict.figures.operations, verdict.figures.effects), (3, 3), "{verdict}");
    tokio::join!(retention(&stage, FAST, SLOW), retention(&stage, SLOW, FAST));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_gateways_do_not_matter_on_redis() {
    by_the_stores_clock(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_gateways_do_not_matter_on_postgres() {
    by_the_stores_clock(Store::postgres()).await;
}
