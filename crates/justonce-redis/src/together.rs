//! Begins and completions of callers who come at once: one command for all of them.
//!
//! Nobody waits for company: a step goes as soon as the command before it is back, or has taken too
//! long. What is won is what a command costs besides its steps: reading it, starting a script,
//! asking for the time, writing a reply, and waking up for all that.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use justonce_core::{RecordId, StoreError, StoreErrorKind, StoreResult};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::strange;
use crate::layout::bucket;
use crate::nodes::Nodes;
use crate::scripts::{Lua, Scripts};
use crate::store::run_script;

/// How many steps go together at most: the server does nothing else meanwhile.
const TOGETHER: usize = 32;
/// How long a step waits for the command before it. Then another one goes beside that.
const PATIENCE: Duration = Duration::from_millis(2);
/// How many commands of a kind go beside each other at most.
const BESIDE: usize = 8;

/// What steps go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    Complete,
}

/// The queues of steps that may go together.
pub(crate) struct Together {
    nodes: Arc<Nodes>,
    scripts: Arc<Scripts>,
    /// By kind and connection.
    queues: [[Mutex<Queue>; 2]; 2],
}

#[derive(Default)]
struct Queue {
    busy: usize,
    waiting: VecDeque<Waiting>,
}

/// A step that waits, and who waits for it.
struct Waiting {
    id: RecordId,
    arguments: Vec<Vec<u8>>,
    reply: oneshot::Sender<Reply>,
}

/// What a script gave for a step; nothing if the step must go alone.
type Reply = StoreResult<Option<Value>>;

impl Together {
    pub(crate) fn new(nodes: Arc<Nodes>, scripts: Arc<Scripts>) -> Arc<Self> {
        Arc::new(Self { nodes, scripts, queues: Default::default() })
    }

    /// Takes a step, alone or with others; nothing was done about it if there is no value.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        kind: Kind,
        id: &RecordId,
        arguments: Vec<Vec<u8>>,
    ) -> Reply {
        // Writes of one record go by one connection.
        let [.., lane] = *id.as_bytes();
        let (reply, answer) = oneshot::channel();
        if self.enter(kind, lane, Waiting { id: *id, arguments, reply }) {
            self.serve(kind, lane);
        }
        let mut answer = pin!(answer);
        loop {
            match timeout(PATIENCE, &mut answer).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(_)) => {
                    let message = "the runtime that took this step to Redis has ended";
                    return Err(StoreError::maybe_applied(StoreErrorKind::Stopped, message));
                }
                Err(_) => {
                    if self.open(kind, lane) {
                        self.serve(kind, lane);
                    }
                }
            }
        }
    }

    fn queue(&self, kind: Kind, lane: u8) -> MutexGuard<'_, Queue> {
        let [begins, completions] = &self.queues;
        let [even, odd] = match kind {
            Kind::Begin => begins,
            Kind::Complete => completions,
        };
        let queue = if lane.is_multiple_of(2) { even } else { odd };
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who waits; whether nobody served the queue, and somebody has to now.
    fn enter(&self, kind: Kind, lane: u8, waiting: Waiting) -> bool {
        let mut queue = self.queue(kind, lane);
        queue.waiting.push_back(waiting);
        let free = queue.busy == 0;
        queue.busy += usize::from(free);
        free
    }

    /// Whether somebody waits, and one more may serve.
    fn open(&self, kind: Kind, lane: u8) -> bool {
        let mut queue = self.queue(kind, lane);
        let opened = !queue.waiting.is_empty() && queue.busy < BESIDE;
        queue.busy += usize::from(opened);
        opened
    }

    fn serve(self: &Arc<Self>, kind: Kind, lane: u8) {
        let serving = Serving { together: Arc::clone(self), kind, lane, done: false };
        tokio::spawn(serving.serve());
    }

    /// Those who go next. Without any, nobody serves the queue any more.
    fn next(&self, kind: Kind, lane: u8) -> Vec<Waiting> {
        let mut queue = self.queue(kind, lane);
        // Whoever has stopped waiting was not served, and never is.
        queue.waiting.retain(|waiting| !waiting.reply.is_closed());
        let count = queue.waiting.len().min(TOGETHER);
        if count == 0 {
            queue.busy -= 1;
        }
        queue.waiting.drain(..count).collect()
    }

    async fn take(&self, kind: Kind, lane: u8, going: Vec<Waiting>) {
        let is_alone = going.len() == 1;
        let sent = self.send(kind, lane, &going).await;
        let mut replies = match sent {
            Ok(value) if is_alone => vec![Ok(Some(value))],
            Ok(value) => shares(kind, value, going.len()),
            // What the server refuses need not be everybody's fault. Both kinds of step may be
            // repeated: a begin finds its own claim by its token.
            Err(error) if !is_alone && !is_away(&error) => vec![Ok(None); going.len()],
            Err(error) => vec![Err(error); going.len()],
        }
        .into_iter();
        for waiting in going {
            let reply = replies.next().unwrap_or_else(|| Err(strange("steps together")));
            // Whoever is gone has left its claim to be given back.
            let _ = waiting.reply.send(reply);
        }
    }

    async fn send(&self, kind: Kind, lane: u8, going: &[Waiting]) -> StoreResult<Value> {
        let layout = &self.nodes.layout;
        let keys: Vec<_> = going
            .iter()
            .flat_map(|waiting| [layout.record(&waiting.id), layout.index(bucket(&waiting.id))])
            .collect();
        let arguments: Vec<&[u8]> =
            going.iter().flat_map(|waiting| waiting.arguments.iter().map(Vec::as_slice)).collect();
        let script = self.script(kind, going.len());
        Ok(run_script(&self.nodes, 0, lane, script, &keys, &arguments).await?.value)
    }

    fn script(&self, kind: Kind, count: usize) -> &Lua {
        match (kind, count) {
            (Kind::Begin, 1) => &self.scripts.begin,
            (Kind::Begin, _) => &self.scripts.begin_together,
            (Kind::Complete, 1) => &self.scripts.complete,
            (Kind::Complete, _) => &self.scripts.complete_together,
        }
    }
}

/// Whether it is not known what a server did, or there is none.
fn is_away(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut)
}

/// What each step would have been given alone.
fn shares(kind: Kind, value: Value, count: usize) -> Vec<Reply> {
    let Value::Array(values) = value else { return Vec::new() };
    let mut values = values.into_iter();
    let moment = match kind {
        Kind::Begin => values.next().unwrap_or(Value::Nil),
        Kind::Complete => Value::Nil,
    };
    let share = |value| match (kind, value) {
        (_, Value::Int(0)) => Ok(None),
        (Kind::Complete, Value::Int(1)) => Ok(Some(Value::BulkString(b"applied".to_vec()))),
        (Kind::Begin, fence @ Value::Int(_)) => Ok(Some(fence)),
        (Kind::Begin, record @ Value::BulkString(_)) => {
            Ok(Some(Value::Array(vec![moment.clone(), record])))
        }
        _ => Err(strange("steps together")),
    };
    values.map(share).take(count).collect()
}

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").finish_non_exhaustive()
    }
}

/// Serves a queue until nobody waits in it.
struct Serving {
    together: Arc<Together>,
    kind: Kind,
    lane: u8,
    done: bool,
}

impl Serving {
    async fn serve(mut self) {
        loop {
            // Whoever was woken together with the last one is about to ask as well.
            tokio::task::yield_now().await;
            let going = self.together.next(self.kind, self.lane);
            if going.is_empty() {
                self.done = true;
                return;
            }
            self.together.take(self.kind, self.lane, going).await;
        }
    }
}

impl Drop for Serving {
    /// Its runtime ends, or it panicked: those who wait are told, as nobody may be left to serve
    /// them.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.together.queue(self.kind, self.lane);
            queue.busy -= 1;
            queue.waiting.clear();
        }
    }
}
