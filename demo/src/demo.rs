//! Starts everything, and stops it again.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use justonce_core::Entropy;
use justonce_testkit::history::Recorder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::behaviour::charges_of;
use crate::client::Client;
use crate::gateway::Gateway;
use crate::ledger::charges_by_key;
use crate::options::DemoOptions;
use crate::progress::Progress;
use crate::report::{Report, note, print_invitation, say};
use crate::seen::{Counts, Seen};
use crate::toy::ToyApi;
use crate::verdict::judge;

/// What a shell expects of a program that was interrupted.
const INTERRUPTED: u8 = 130;
/// Seeds are short enough to be typed.
const SEEDS: u64 = 1_000_000;

/// Runs the demo. Everything that it starts has ended when it returns, whatever happened.
///
/// # Errors
/// If something cannot be started. A verdict that fails is no error, but an exit code that says so.
pub fn run(options: DemoOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(perform(options))
}

async fn perform(options: DemoOptions) -> Result<ExitCode> {
    // Before anything is started: a signal must stop it.
    let mut stop = Stop::new()?;
    let seed = options.seed.unwrap_or_else(|| Entropy::from_system().next_u64() % SEEDS);
    let directory = tempfile::Builder::new()
        .prefix("justonce-demo-")
        .tempdir()
        .context("no temporary directory can be made")?;
    let ledger = directory.path().join("ledger.jsonl");
    let recorder = Recorder::default();
    let toy = ToyApi::start(seed, &ledger, recorder.clone())
        .await
        .context("the toy API cannot be started")?;
    let gateway = Gateway::new(directory.path(), toy.address(), options.port)?;
    let demo = Demo { options, seed, ledger, recorder, toy, gateway };
    let ended = tokio::select! {
        biased;
        () = stop.wait() => Ok(None),
        passed = demo.play() => passed.map(Some),
    };
    let ended = match ended {
        Ok(Some(passed)) if stays(&demo.options) => tokio::select! {
            biased;
            () = stop.wait() => Ok(Some(passed)),
            ended = demo.stay() => ended.map(|()| Some(passed)),
        },
        ended => ended,
    };
    let killed = demo.gateway.kill().await;
    drop(demo);
    let removed = directory.close().context("the temporary directory cannot be removed");
    let code = match ended? {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            note("Interrupted. Everything that was started has ended.");
            ExitCode::from(INTERRUPTED)
        }
    };
    killed.and(removed).map(|()| code)
}

/// Whether everything stays up after the table, for the reader to try. Without a terminal nobody
/// would, and a job would never end.
fn stays(options: &DemoOptions) -> bool {
    if options.once {
        return false;
    }
    let has_reader = std::io::stdout().is_terminal();
    if !has_reader {
        note("The output is no terminal, so the demo ends here. On one it stays up to be tried.");
    }
    has_reader
}

/// Everything that runs.
#[derive(Debug)]
struct Demo {
    options: DemoOptions,
    seed: u64,
    ledger: PathBuf,
    recorder: Recorder,
    toy: ToyApi,
    gateway: Gateway,
}

impl Demo {
    /// Runs the client, prints the table, and tells whether the verdict is a good one.
    async fn play(&self) -> Result<bool> {
        let operations = self.options.operations;
        self.print_scene();
        if !self.options.without_gateway {
            self.gateway.start().await?;
        }
        let begun = Instant::now();
        let progress = Progress::start(operations);
        let seen = self.pay(&progress).await?;
        progress.finish();
        let elapsed = begun.elapsed();
        let verdict = judge(&seen, &charges_by_key(&self.ledger)?, &self.recorder.history());
        let straight = seen.iter().map(|seen| charges_of(self.seed, &seen.key, seen.counts.whole));
        let report = Report {
            counts: Counts::sum(&seen),
            reached: self.toy.asked(),
            straight: straight.sum(),
            kills: self.gateway.kills(),
            is_guarded: !self.options.without_gateway,
            elapsed,
            verdict,
        };
        say(&report);
        Ok(report.verdict.passed())
    }

    async fn pay(&self, progress: &Progress) -> Result<Vec<Seen>> {
        let without_gateway = self.options.without_gateway;
        let target = if without_gateway { self.toy.address() } else { self.gateway.address() };
        let client = Client::new(target, self.seed, self.recorder.clone());
        let (seen, (), ()) = tokio::try_join!(
            client.perform(self.options.operations),
            self.kill_in_the_middle(client.settled(), progress),
            async {
                progress.follow(client.settled()).await;
                Ok(())
            }
        )?;
        if without_gateway {
            return Ok(seen);
        }
        progress.note("Every operation is settled; now each is asked for once more.");
        client.ask_again(seen).await
    }

    async fn kill_in_the_middle(
        &self,
        mut settled: watch::Receiver<u32>,
        progress: &Progress,
    ) -> Result<()> {
        if self.options.without_gateway {
            return Ok(());
        }
        let middle = self.options.operations / 2;
        settled.wait_for(|settled| *settled >= middle).await?;
        self.gateway.kill().await?;
        progress.note("The gateway was killed with SIGKILL in the middle of its work.");
        let begun = Instant::now();
        self.gateway.start().await.context("the gateway was killed and cannot be restarted")?;
        let time = begun.elapsed().as_millis();
        progress.note(&format!("The gateway is up again on the same store, after {time} ms."));
        Ok(())
    }

    /// Lets the reader try.
    async fn stay(&self) -> Result<()> {
        self.toy.stop_faults();
        if self.options.without_gateway {
            print_invitation(self.toy.address(), &self.ledger);
            return std::future::pending().await;
        }
        print_invitation(self.gateway.address(), &self.ledger);
        self.gateway.ended().await
    }

    fn print_scene(&self) {
        let Self { options, seed, toy, gateway, .. } = self;
        say(format_args!("A toy payments API that charges whoever asks: http://{}", toy.address()));
        if options.without_gateway {
            say("No gateway: the client pays there directly.");
        } else {
            say(format_args!("The gateway in front of it: http://{}", gateway.address()));
        }
        say(format_args!(
            "A lossy client makes {} payments. Its chances, and the API's whims, can be repeated \
             with --seed {seed}.",
            options.operations
        ));
    }
}

/// The signals that end the demo.
#[derive(Debug)]
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
