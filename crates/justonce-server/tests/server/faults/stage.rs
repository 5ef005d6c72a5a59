//! Gateways on one store, in front of a ledger.

use std::net::SocketAddr;
use std::process::Command;

use justonce_testkit::history::{Guarantee, Recorder, Tally, Verdict, judge};
use nix::sys::signal::Signal;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::faults::client::Client;
use crate::faults::ledger::Ledger;
use crate::faults::load::{Load, audit};
use crate::support::process::{Gateway, Home, LIMIT};

/// The outcomes that a gateway keeps for itself would hide what the store has lost.
const NO_NEAR_CACHE: &str = "[near_cache]\nenabled = false\n[log]\nlevel = 'warn'\n";
/// How many pairs of clients make a load.
const PAIRS: usize = 4;

/// Gateways, a ledger and what was seen of them.
pub(crate) struct Stage {
    pub(crate) ledger: Ledger,
    pub(crate) recorder: Recorder,
    gateways: Vec<(Home, Gateway)>,
}

impl Stage {
    /// So many gateways with these settings on a store.
    pub(crate) async fn new(store: &str, count: usize, more: &str) -> Self {
        Self::with(store, more, vec![|_: &mut Command| {}; count]).await
    }

    /// A gateway for each of these, which change how it is started.
    pub(crate) async fn with(store: &str, more: &str, changes: Vec<impl Fn(&mut Command)>) -> Self {
        let recorder = Recorder::default();
        let ledger = Ledger::start(recorder.clone()).await;
        let text = format!(
            "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = 'http://{}'\n\
             store = '{store}'\n{NO_NEAR_CACHE}{more}\n",
            ledger.address
        );
        let gateways = changes.iter().map(|change| {
            let home = Home::new();
            std::fs::write(home.config(), &text).unwrap();
            let mut command = home.command();
            change(&mut command);
            let gateway = block_in_place(|| Gateway::start(command).unwrap());
            (home, gateway)
        });
        let gateways = gateways.collect();
        Self { ledger, recorder, gateways }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|(_, gateway)| gateway.address).collect()
    }

    /// A client of one of the gateways.
    pub(crate) fn client(&self, gateway: usize) -> Client {
        Client::new(self.gateways[gateway].1.address, self.recorder.clone())
    }

    /// Sends a signal to one of the gateways.
    pub(crate) fn signal(&self, gateway: usize, signal: Signal) {
        self.gateways[gateway].1.signal(signal);
    }

    pub(crate) fn load(&self) -> Load {
        Load::start(&self.addresses(), &self.recorder, PAIRS)
    }

    /// Waits until so much was seen.
    pub(crate) async fn seen(&self, what: &str, enough: impl FnMut(&Tally) -> bool) -> Tally {
        let mut tally = self.recorder.tally();
        let seen = timeout(LIMIT, tally.wait_for(enough)).await;
        let seen = seen.map(|tally| *tally.unwrap());
        seen.unwrap_or_else(|_| panic!("{what} was never seen: {:?}", self.tally()))
    }

    pub(crate) fn tally(&self) -> Tally {
        *self.recorder.tally().borrow()
    }

    /// Waits until so many more effects were seen: the gateways are at work.
    pub(crate) async fn works(&self, more: u64) {
        let wanted = self.tally().effects + more;
        self.seen("more work", |tally| tally.effects >= wanted).await;
    }

    /// While the store is away, every gateway says so and sends nothing to the service.
    pub(crate) async fn refuses(&self, name: &str) {
        use justonce_testkit::history::Reply;
        for gateway in 0..self.gateways.len() {
            let heard = self.client(gateway).ask(&format!("{name}-{gateway}"), 0).await;
            assert_eq!(heard.reply, Reply::Unavailable, "gateway {gateway}, {name}");
        }
    }

    /// Asks for everything again, and reads the whole history.
    pub(crate) async fn verdict(&self, guarantee: Guarantee) -> Verdict {
        audit(&self.addresses(), &self.recorder).await;
        let verdict = judge(&self.recorder.history(), guarantee);
        println!("{verdict}\n{:?}", self.tally());
        assert!(verdict.is_fine(), "{verdict}");
        assert_eq!(verdict.figures.open, 0, "operations that never came to an end: {verdict}");
        verdict
    }

    /// Reads the whole history: every owner has said what it did, and each effect is acknowledged.
    pub(crate) async fn all_done_once(&self) {
        let figures = self.verdict(Guarantee::AtMostOnce).await.figures;
        assert_eq!(figures.unknown, 0, "{figures:?}");
        assert_eq!(figures.acknowledged, figures.effects, "{figures:?}");
    }
}
