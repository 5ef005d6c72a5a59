//! Taking down what is seen, in one order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::event::{Event, Reply, RequestId};

/// Everything that was seen, in the order in which it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub(super) events: Vec<Event>,
    requests: usize,
}

/// How much was seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub asked: u64,
    /// Effects.
    pub effects: u64,
    /// Replies that acknowledge, replays included.
    pub acknowledged: u64,
    /// Replays.
    pub replayed: u64,
    /// Replies that the operation is running.
    pub in_flight: u64,
    /// Replies that it is unknown.
    pub unknown: u64,
    /// Replies that nothing can be executed now.
    pub unavailable: u64,
    /// Replies that never came.
    pub lost: u64,
}

/// Takes down what many tasks see. Clones write the same history.
#[derive(Clone, Debug)]
pub struct Recorder {
    history: Arc<Mutex<History>>,
    tally: Arc<watch::Sender<Tally>>,
}

impl Default for Recorder {
    fn default() -> Self {
        let tally = Arc::new(watch::Sender::new(Tally::default()));
        Self { history: Arc::default(), tally }
    }
}

impl History {
    /// All that was seen.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// A request is about to be sent.
    pub fn asked(&mut self, operation: impl Into<String>) -> RequestId {
        let request = RequestId(self.requests);
        self.requests += 1;
        self.events.push(Event::Asked { operation: operation.into(), request });
        request
    }

    /// The service does it.
    pub fn effect(&mut self, operation: impl Into<String>, answer: impl Into<String>) {
        let (operation, answer) = (operation.into(), answer.into());
        self.events.push(Event::Effect { operation, answer });
    }

    /// The reply to a request is there.
    pub fn replied(&mut self, request: RequestId, reply: Reply) {
        self.events.push(Event::Replied { request, reply });
    }
}

impl Recorder {
    /// A request is about to be sent: call it before the first byte.
    #[must_use = "the reply belongs to this request"]
    pub fn asked(&self, operation: &str) -> RequestId {
        let request = self.lock().asked(operation);
        self.tally.send_modify(|tally| tally.asked += 1);
        request
    }

    /// The service does it: call it before the service answers.
    pub fn effect(&self, operation: &str, answer: &str) {
        self.lock().effect(operation, answer);
        self.tally.send_modify(|tally| tally.effects += 1);
    }

    /// The reply to a request is there: call it after its last byte.
    pub fn replied(&self, request: RequestId, reply: Reply) {
        self.tally.send_modify(|tally| tally.count(&reply));
        self.lock().replied(request, reply);
    }

    /// What was seen so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.lock().clone()
    }

    /// How much was seen so far; tests wait for it to grow.
    #[must_use]
    pub fn tally(&self) -> watch::Receiver<Tally> {
        self.tally.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn count(&mut self, reply: &Reply) {
        match reply {
            Reply::Acknowledged { replayed, .. } => {
                self.acknowledged += 1;
                self.replayed += u64::from(*replayed);
            }
            Reply::InFlight => self.in_flight += 1,
            Reply::Unknown => self.unknown += 1,
            Reply::Unavailable => self.unavailable += 1,
            Reply::Lost => self.lost += 1,
            Reply::Superseded | Reply::Surprise(_) => {}
        }
    }
}
