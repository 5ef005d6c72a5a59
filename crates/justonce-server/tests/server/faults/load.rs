//! Clients that ask for one operation after the other, each until they know what became of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use justonce_testkit::history::{Event, Recorder, Reply};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::faults::client::Client;

/// How many operations each pair of clients asks for at most.
const OPERATIONS: u32 = 10_000;
/// The pause of a client between two operations: servers need time to recover.
const PACE: Duration = Duration::from_millis(4);
/// How long a client asks for one operation at most.
const PERSISTENCE: Duration = Duration::from_secs(40);
/// The pauses between two tries grow from this…
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// …to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How many clients ask at the end for the state of each operation.
const AUDITORS: usize = 8;
/// How long a client that is willing to wait waits for a running operation, in seconds.
const WAIT: u32 = 2;

/// Clients at work, in pairs: both of a pair ask for the same operations.
pub(crate) struct Load {
    clients: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Load {
    pub(crate) fn start(gateways: &[SocketAddr], recorder: &Recorder, pairs: usize) -> Self {
        let stop = watch::Sender::new(false);
        let mut clients = JoinSet::new();
        for number in 0..2 * pairs {
            let stopped = stop.subscribe();
            let mut asker = Asker::new(gateways, recorder, number);
            clients.spawn(async move {
                for operation in 0..OPERATIONS {
                    if *stopped.borrow() {
                        break;
                    }
                    asker.find_out(&format!("{}-{operation}", number / 2)).await;
                    sleep(PACE).await; // tidy: allow-sleep: the pace of the load
                }
            });
        }
        Self { clients, stop }
    }

    /// Lets every client finish what it is asking for.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.clients.join_all().await;
    }
}

/// Asks once more for every operation of the history, until what became of it is known.
pub(crate) async fn audit(gateways: &[SocketAddr], recorder: &Recorder) {
    let history = recorder.history();
    let asked = history.events().iter().filter_map(|event| match event {
        Event::Asked { operation, .. } => Some(operation.clone()),
        _ => None,
    });
    let operations: Vec<String> = asked.collect::<BTreeSet<_>>().into_iter().collect();
    let mut auditors = JoinSet::new();
    for number in 0..AUDITORS {
        let mine: Vec<String> = operations.iter().skip(number).step_by(AUDITORS).cloned().collect();
        let mut asker = Asker::new(gateways, recorder, number);
        auditors.spawn(async move {
            for operation in mine {
                asker.find_out(&operation).await;
            }
        });
    }
    auditors.join_all().await;
}

/// A client of all gateways, which goes to the next one whenever it is not satisfied.
pub(crate) struct Asker {
    clients: Vec<Client>,
    turn: usize,
}

impl Asker {
    pub(crate) fn new(gateways: &[SocketAddr], recorder: &Recorder, first: usize) -> Self {
        let client = |gateway: &SocketAddr| Client::new(*gateway, recorder.clone());
        Self { clients: gateways.iter().map(client).collect(), turn: first }
    }

    /// Asks until it is acknowledged or unknown, or patience ends.
    pub(crate) async fn find_out(&mut self, key: &str) {
        let until = Instant::now() + PERSISTENCE;
        let mut pause = FIRST_PAUSE;
        while Instant::now() < until {
            self.turn += 1;
            let number = self.turn % self.clients.len();
            // Some wait for a running operation, some do not.
            let wait = if self.turn.is_multiple_of(2) { WAIT } else { 0 };
            match self.clients[number].ask(key, wait).await.reply {
                Reply::Acknowledged { .. } | Reply::Unknown | Reply::Surprise(_) => return,
                Reply::InFlight | Reply::Unavailable | Reply::Superseded | Reply::Lost => {}
            }
            sleep(pause).await; // tidy: allow-sleep: the back-off of a client that retries
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
