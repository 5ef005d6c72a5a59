//! Batches: concurrent begins, and concurrent completions, in one command.
//!
//! A batch saves the fixed cost of a command: reading it, starting a script, reading the time and
//! writing a reply.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies, may_batch};
use justonce_core::{Action, RecordId, Step, StoreError, StoreErrorKind, StoreResult};
use redis::Value;

use crate::codec::{NewClaim, TERMS_BYTES, completion};
use crate::connection::Connection;
use crate::error::{CommandError, unexpected};
use crate::layout::bucket;
use crate::nodes::Nodes;
use crate::scripts::{self, Lua, Scripts};

/// The server does nothing else while it runs a script, so batches stay small.
const LIMITS: BatchLimits = BatchLimits {
    unbatched: 1,
    max_in_flight: 8,
    max_batch: 32,
    max_wait: Duration::from_millis(5),
};

/// The kind of steps in a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Begin,
    Complete,
}

/// The queues of steps that may be batched, by kind.
pub(crate) struct Batches {
    begins: BatchQueue<Commands>,
    completions: BatchQueue<Commands>,
}

impl Batches {
    pub(crate) fn new(nodes: &Arc<Nodes>, scripts: &Arc<Scripts>) -> Self {
        let queue = |kind| {
            let (nodes, scripts) = (Arc::clone(nodes), Arc::clone(scripts));
            BatchQueue::new(Commands { nodes, scripts, kind }, LIMITS)
        };
        Self { begins: queue(Kind::Begin), completions: queue(Kind::Complete) }
    }

    /// The script's reply to a step; `None` if the step must be sent alone.
    pub(crate) async fn apply(&self, step: BatchedStep) -> StoreResult<Option<Value>> {
        let queue = match step.terms {
            Some(_) => &self.begins,
            None => &self.completions,
        };
        queue.call(step).await
    }
}

/// A step as the arguments of its script.
pub(crate) struct BatchedStep {
    id: RecordId,
    /// Only a begin has them.
    terms: Option<[u8; TERMS_BYTES]>,
    body: Vec<u8>,
}

impl BatchedStep {
    /// Begins and completions are batched if they are small.
    pub(crate) fn new(step: &Step) -> Option<Self> {
        let id = step.id;
        match &step.action {
            Action::Begin(begin) if begin.checkpoint.is_none() => {
                let NewClaim { terms, body, .. } = NewClaim::new(&id, begin);
                Some(Self { id, terms: Some(terms), body })
            }
            Action::Complete(fence, outcome) if may_batch(outcome) => {
                Some(Self { id, terms: None, body: completion(*fence, outcome) })
            }
            _ => None,
        }
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.terms.iter().map(<[u8; TERMS_BYTES]>::as_slice).chain([&*self.body])
    }
}

/// Sends batches of one kind to the server.
pub(crate) struct Commands {
    nodes: Arc<Nodes>,
    scripts: Arc<Scripts>,
    kind: Kind,
}

impl BatchExecutor for Commands {
    type Request = BatchedStep;
    type Reply = Option<Value>;
    type Connection = Connection;

    async fn connect(&self) -> StoreResult<Connection> {
        // Steps are batched only where there is one server, so any bucket will do. Both kinds share
        // one connection, so that client and server read and write both at once.
        self.nodes.connection(0, 0).await
    }

    async fn execute(
        &self,
        connection: StoreResult<Connection>,
        batch: Vec<Pending<Self>>,
    ) -> Replies<Option<Value>> {
        let (count, is_alone) = (batch.len(), batch.len() == 1);
        let sent = match connection {
            Ok(connection) => self.send(&connection, &batch).await,
            Err(error) => Err(CommandError::Final(error)),
        };
        let mut replies = match sent {
            Ok(value) if is_alone => vec![Ok(Some(value))],
            Ok(value) => replies(self.kind, count, value),
            // Nothing was done. A retry finds the server that has taken over.
            Err(CommandError::Demoted(_)) => vec![Ok(None); count],
            Err(error) => match error.into_error() {
                // One step may be the reason that all were refused. Both kinds may be retried: a
                // begin finds its own claim by its token.
                error if !is_alone && !is_away(&error) => vec![Ok(None); count],
                error => vec![Err(error); count],
            },
        }
        .into_iter();
        let reply = |pending: Pending<Self>| {
            let reply = replies.next().unwrap_or_else(|| Err(unexpected("a batch")));
            (pending.reply_to, reply)
        };
        batch.into_iter().map(reply).collect()
    }
}

impl Commands {
    async fn send(
        &self,
        connection: &Connection,
        batch: &[Pending<Self>],
    ) -> Result<Value, CommandError> {
        let layout = &self.nodes.layout;
        let ids = || batch.iter().map(|pending| &pending.request.id);
        // One server has one last fence for all.
        let fence = (self.kind == Kind::Begin).then(|| self.nodes.fence(0));
        let keys: Vec<_> = if self.kind == Kind::Begin && batch.len() > 1 {
            let records = ids().map(|id| layout.record(id));
            records.chain(fence).chain(ids().map(|id| layout.index(bucket(id)))).collect()
        } else {
            let pairs = ids().flat_map(|id| [layout.record(id), layout.index(bucket(id))]);
            pairs.chain(fence).collect()
        };
        let duplicates = has_duplicates(ids()).then_some(b"1".as_slice());
        let arguments: Vec<&[u8]> = batch
            .iter()
            .flat_map(|pending| pending.request.arguments())
            .chain(duplicates)
            .collect();
        scripts::run_over(&self.nodes, connection, self.script(batch.len()), &keys, &arguments)
            .await
    }

    fn script(&self, count: usize) -> &Lua {
        match (self.kind, count) {
            (Kind::Begin, 1) => &self.scripts.begin,
            (Kind::Begin, _) => &self.scripts.begin_batch,
            (Kind::Complete, 1) => &self.scripts.complete,
            (Kind::Complete, _) => &self.scripts.complete_batch,
        }
    }
}

/// Whether the server cannot be reached, or may have executed the batch.
fn is_away(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut)
}

/// Whether a record comes twice. A batch is small, and nearly all ids differ in their first bytes.
fn has_duplicates<'a>(mut ids: impl Iterator<Item = &'a RecordId> + Clone) -> bool {
    while let Some(id) = ids.next() {
        if ids.clone().any(|other| other == id) {
            return true;
        }
    }
    false
}

/// The reply that each step would have got if sent alone.
fn replies(kind: Kind, count: usize, value: Value) -> Vec<StoreResult<Option<Value>>> {
    let replies = match kind {
        Kind::Begin => begun(count, value),
        Kind::Complete => completed(count, value),
    };
    replies.unwrap_or_default()
}

/// A letter for each step. No letters stand for the same one for all.
fn letters(value: Value, count: usize, common: u8) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(letters) if letters.is_empty() => Some(vec![common; count]),
        Value::BulkString(letters) => Some(letters),
        _ => None,
    }
}

fn begun(count: usize, value: Value) -> Option<Vec<StoreResult<Option<Value>>>> {
    let Value::Array(values) = value else { return None };
    let mut values = values.into_iter();
    let moment = values.next()?;
    let Some(Value::Int(mut fence)) = values.next() else { return None };
    let letters = letters(values.next()?, count, b'c')?;
    let reply = |letter| match letter {
        b'c' => {
            let own = Value::Int(fence);
            fence = fence.saturating_add(1);
            Ok(Some(own))
        }
        b'r' => match values.next() {
            Some(record) => Ok(Some(Value::Array(vec![moment.clone(), record]))),
            None => Err(unexpected("a batch")),
        },
        b'a' => Ok(None),
        _ => Err(unexpected("a batch")),
    };
    Some(letters.into_iter().map(reply).collect())
}

fn completed(count: usize, value: Value) -> Option<Vec<StoreResult<Option<Value>>>> {
    let letters = letters(value, count, b'd')?;
    let reply = |letter| match letter {
        b'd' => Ok(Some(Value::BulkString(b"applied".to_vec()))),
        b'a' => Ok(None),
        _ => Err(unexpected("a batch")),
    };
    Some(letters.into_iter().map(reply).collect())
}
