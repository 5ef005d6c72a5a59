//! The lossy client: it wants every payment made once, and repeats requests in every way.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use justonce_testkit::history::Recorder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::answer::Answer;
use crate::chance::Chance;
use crate::exchange::{Disconnect, PaymentRequest, Sent, send};
use crate::plan::{Payment, disconnects};
use crate::seen::Seen;

/// How many operations are under way at once.
const WORKERS: u32 = 16;
/// How soon it tries again, in milliseconds. It ignores `Retry-After`, to make duplicates.
const TRY_AGAIN_MS: RangeInclusive<u64> = 20..=120;
/// How long it tries before it gives an operation up.
const PATIENCE: Duration = Duration::from_secs(30);
/// One acknowledged operation in this many has its key used for something else afterwards.
const CONFUSED_EVERY: u32 = 10;
/// Separate the random numbers of the client's rounds from each other and from all others.
const PERFORM: u64 = 0x7065_7266;
const ASK_AGAIN: u64 = 0x6167_6169;

/// The client.
#[derive(Debug)]
pub(crate) struct Client {
    target: SocketAddr,
    seed: u64,
    recorder: Recorder,
    settled: watch::Sender<u32>,
}

/// What is done with every operation.
#[derive(Clone, Copy, Debug)]
enum Round {
    Perform,
    AskAgain,
}

impl Client {
    /// A client that pays there.
    pub(crate) fn new(target: SocketAddr, seed: u64, recorder: Recorder) -> Arc<Self> {
        let (settled, _) = watch::channel(0);
        Arc::new(Self { target, seed, recorder, settled })
    }

    /// How many operations are settled, as it changes.
    pub(crate) fn settled(&self) -> watch::Receiver<u32> {
        self.settled.subscribe()
    }

    /// Performs so many operations, each until it is settled, and tells what it saw of them.
    pub(crate) async fn perform(self: &Arc<Self>, operations: u32) -> Result<Vec<Seen>> {
        let fresh = (0..operations).map(|number| Seen::new(&Payment::new(self.seed, number)));
        self.round(Round::Perform, fresh.collect()).await
    }

    /// Asks once more for every settled operation, and for some of them with another amount.
    pub(crate) async fn ask_again(self: &Arc<Self>, seen: Vec<Seen>) -> Result<Vec<Seen>> {
        self.round(Round::AskAgain, seen).await
    }

    /// Dropping this stops all workers and closes their connections.
    async fn round(self: &Arc<Self>, round: Round, mut to_do: Vec<Seen>) -> Result<Vec<Seen>> {
        to_do.reverse();
        let to_do = Arc::new(Mutex::new(to_do));
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            workers.spawn(Arc::clone(self).work(round, Arc::clone(&to_do)));
        }
        let mut done = Vec::new();
        while let Some(worker) = workers.join_next().await {
            done.extend(worker.context("a worker of the client failed")?);
        }
        Ok(done)
    }

    async fn work(self: Arc<Self>, round: Round, to_do: Arc<Mutex<Vec<Seen>>>) -> Vec<Seen> {
        let take = || to_do.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut done = Vec::new();
        while let Some(mut seen) = take() {
            match round {
                Round::Perform => {
                    self.settle(&mut seen).await;
                    self.settled.send_modify(|settled| *settled += 1);
                }
                Round::AskAgain => self.ask_once_more(&mut seen).await,
            }
            done.push(seen);
        }
        done
    }

    /// Repeats a payment until it is settled.
    async fn settle(self: &Arc<Self>, seen: &mut Seen) {
        let payment = Payment::new(self.seed, seen.number);
        let chance = Chance::new(self.seed, &[PERFORM, seen.number.into()]);
        let give_up = Instant::now() + PATIENCE;
        for tries_before in 0.. {
            for sent in self.send_all(&payment, &chance, disconnects(&chance, tries_before)).await {
                if sent == Sent::Answered(Answer::Mismatch) {
                    seen.surprises.push("an equal retry was called a mismatch".to_owned());
                }
                seen.note(&sent);
            }
            if seen.is_settled() || Instant::now() > give_up {
                break;
            }
            sleep(chance.millis(&TRY_AGAIN_MS)).await;
        }
    }

    /// All copies of one try, at once.
    async fn send_all(
        self: &Arc<Self>,
        payment: &Payment,
        chance: &Chance,
        copies: Vec<Disconnect>,
    ) -> Vec<Sent> {
        let mut sending = JoinSet::new();
        for disconnect in copies {
            let (client, request) = (Arc::clone(self), payment.request(chance));
            sending.spawn(async move { client.send(&request, disconnect).await });
        }
        sending.join_all().await
    }

    /// Sends a request, and records it with its reply.
    async fn send(&self, request: &PaymentRequest, disconnect: Disconnect) -> Sent {
        let asked = self.recorder.asked(&request.key);
        let sent = send(self.target, request, disconnect).await;
        self.recorder.replied(asked, sent.reply());
        sent
    }

    async fn ask_once_more(&self, seen: &mut Seen) {
        if !seen.is_settled() {
            return;
        }
        let payment = Payment::new(self.seed, seen.number);
        let chance = Chance::new(self.seed, &[ASK_AGAIN, seen.number.into()]);
        let was_acknowledged = seen.is_acknowledged();
        match self.answer(&payment.request(&chance), &chance, seen).await {
            Some(Answer::Acknowledged { .. }) => {}
            Some(Answer::Unknown) if !was_acknowledged => {}
            other => seen.surprises.push(format!("asked again: {}", name(other.as_ref()))),
        }
        if was_acknowledged && seen.number.is_multiple_of(CONFUSED_EVERY) {
            let request = payment.confused_request(&chance);
            match self.answer(&request, &chance, seen).await {
                Some(Answer::Mismatch) => {}
                other => seen.surprises.push(format!("another amount: {}", name(other.as_ref()))),
            }
        }
    }

    /// The answer to a request, however often it takes to get one.
    async fn answer(
        &self,
        request: &PaymentRequest,
        chance: &Chance,
        seen: &mut Seen,
    ) -> Option<Answer> {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            let sent = self.send(request, Disconnect::Never).await;
            seen.note(&sent);
            match sent {
                Sent::Answered(Answer::TryAgain | Answer::InFlight) => {}
                Sent::Answered(answer) => return Some(answer),
                _ => {}
            }
            sleep(chance.millis(&TRY_AGAIN_MS)).await;
        }
        None
    }
}

fn name(answer: Option<&Answer>) -> &str {
    match answer {
        Some(Answer::Acknowledged { .. }) => "acknowledged",
        Some(Answer::InFlight) => "in flight",
        Some(Answer::Unknown) => "unknown",
        Some(Answer::Mismatch) => "mismatch",
        Some(Answer::TryAgain) => "try again",
        Some(Answer::Surprise(text)) => text,
        None => "no answer",
    }
}
