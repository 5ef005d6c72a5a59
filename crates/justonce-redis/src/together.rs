//! Begins and completions of callers who come at once: one command for all of them.
//!
//! What is won is what a command costs besides its steps: reading it, starting a script, asking for
//! the time, writing a reply, and waking up for all that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{Carrier, LaneLimits, Lanes, Told, Waiting, may_share};
use justonce_core::{Action, RecordId, Step, StoreError, StoreErrorKind, StoreResult};
use redis::Value;

use crate::codec::{Claiming, TERMS_BYTES, completion};
use crate::error::{Trouble, strange};
use crate::layout::bucket;
use crate::link::Live;
use crate::nodes::Nodes;
use crate::scripts::{Lua, Scripts};
use crate::store::run_by;

/// The server does nothing else while it runs a script, so not too many go together.
const LIMITS: LaneLimits =
    LaneLimits { alone: 1, at_most: 8, together: 32, patience: Duration::from_millis(5) };

/// What steps go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Begin,
    Complete,
}

/// The steps that may go together, by kind.
#[derive(Debug)]
pub(crate) struct Together {
    begins: Arc<Lanes<Commands>>,
    completions: Arc<Lanes<Commands>>,
}

impl Together {
    pub(crate) fn new(nodes: &Arc<Nodes>, scripts: &Arc<Scripts>) -> Self {
        let lanes = |kind| {
            let (nodes, scripts) = (Arc::clone(nodes), Arc::clone(scripts));
            Lanes::new(Commands { nodes, scripts, kind }, LIMITS)
        };
        Self { begins: lanes(Kind::Begin), completions: lanes(Kind::Complete) }
    }

    /// What a script gave for a step, alone or with others; nothing if the step must go alone.
    pub(crate) async fn apply(&self, asked: Asked) -> StoreResult<Option<Value>> {
        let lanes = match asked.terms {
            Some(_) => &self.begins,
            None => &self.completions,
        };
        lanes.apply(asked).await
    }
}

/// A step as its script is asked for it.
pub(crate) struct Asked {
    id: RecordId,
    /// Only a begin has them.
    terms: Option<[u8; TERMS_BYTES]>,
    body: Vec<u8>,
}

impl Asked {
    /// Begins and completions, if they are not large.
    pub(crate) fn new(step: &Step) -> Option<Self> {
        let id = step.id;
        match &step.action {
            Action::Begin(begin) if begin.checkpoint.is_none() => {
                let Claiming { terms, body, .. } = Claiming::new(&id, begin);
                Some(Self { id, terms: Some(terms), body })
            }
            Action::Complete(fence, outcome) if may_share(outcome) => {
                Some(Self { id, terms: None, body: completion(*fence, outcome) })
            }
            _ => None,
        }
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.terms.iter().map(<[u8; TERMS_BYTES]>::as_slice).chain([&*self.body])
    }
}

/// Takes steps of one kind to the server.
pub(crate) struct Commands {
    nodes: Arc<Nodes>,
    scripts: Arc<Scripts>,
    kind: Kind,
}

impl Carrier for Commands {
    type Load = Asked;
    type Answer = Option<Value>;
    type Way = Live;

    async fn way(&self) -> StoreResult<Live> {
        // Only where there is one server do steps go together: any bucket is its bucket. And by one
        // connection, so that both sides read and write both kinds at once.
        self.nodes.live(0, 0).await
    }

    async fn carry(
        &self,
        way: StoreResult<Live>,
        going: Vec<Waiting<Self>>,
    ) -> Told<Option<Value>> {
        let (count, is_alone) = (going.len(), going.len() == 1);
        let sent = match way {
            Ok(live) => self.send(&live, &going).await,
            Err(error) => Err(Trouble::Final(error)),
        };
        let mut shares = match sent {
            Ok(value) if is_alone => vec![Ok(Some(value))],
            Ok(value) => shares(self.kind, count, value),
            // Nothing was done, and whoever still waits finds the server that has taken over.
            Err(Trouble::Demoted(_)) => vec![Ok(None); count],
            Err(trouble) => match trouble.into_error() {
                // What the server refuses need not be everybody's fault. Both kinds of step may be
                // repeated: a begin finds its own claim by its token.
                error if !is_alone && !is_away(&error) => vec![Ok(None); count],
                error => vec![Err(error); count],
            },
        }
        .into_iter();
        let share = |waiting: Waiting<Self>| {
            let share = shares.next().unwrap_or_else(|| Err(strange("steps together")));
            (waiting.caller, share)
        };
        going.into_iter().map(share).collect()
    }
}

impl Commands {
    async fn send(&self, live: &Live, going: &[Waiting<Self>]) -> Result<Value, Trouble> {
        let layout = &self.nodes.layout;
        let ids = || going.iter().map(|waiting| &waiting.load.id);
        // One server has one last fence for all.
        let fence = (self.kind == Kind::Begin).then(|| self.nodes.fence(0));
        let keys: Vec<_> = if self.kind == Kind::Begin && going.len() > 1 {
            let records = ids().map(|id| layout.record(id));
            records.chain(fence).chain(ids().map(|id| layout.index(bucket(id)))).collect()
        } else {
            let pairs = ids().flat_map(|id| [layout.record(id), layout.index(bucket(id))]);
            pairs.chain(fence).collect()
        };
        let twice = has_twins(ids()).then_some(b"1".as_slice());
        let arguments: Vec<&[u8]> =
            going.iter().flat_map(|waiting| waiting.load.arguments()).chain(twice).collect();
        run_by(&self.nodes, live, self.script(going.len()), &keys, &arguments).await
    }

    fn script(&self, count: usize) -> &Lua {
        match (self.kind, count) {
            (Kind::Begin, 1) => &self.scripts.begin,
            (Kind::Begin, _) => &self.scripts.begin_together,
            (Kind::Complete, 1) => &self.scripts.complete,
            (Kind::Complete, _) => &self.scripts.complete_together,
        }
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Whether it is not known what a server did, or there is none.
fn is_away(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut)
}

/// Whether a record comes twice. They are few, and nearly all differ in their first bytes.
fn has_twins<'a>(ids: impl Iterator<Item = &'a RecordId> + Clone) -> bool {
    let mut rest = ids;
    while let Some(id) = rest.next() {
        if rest.clone().any(|other| other == id) {
            return true;
        }
    }
    false
}

/// What each step would have been given alone.
fn shares(kind: Kind, count: usize, value: Value) -> Vec<StoreResult<Option<Value>>> {
    let shares = match kind {
        Kind::Begin => begun(count, value),
        Kind::Complete => completed(count, value),
    };
    shares.unwrap_or_default()
}

/// A letter for each step: no letters are the same one for all.
fn letters(value: Value, count: usize, most: u8) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(letters) if letters.is_empty() => Some(vec![most; count]),
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
    let share = |letter| match letter {
        b'c' => {
            let own = Value::Int(fence);
            fence = fence.saturating_add(1);
            Ok(Some(own))
        }
        b'r' => match values.next() {
            Some(record) => Ok(Some(Value::Array(vec![moment.clone(), record]))),
            None => Err(strange("steps together")),
        },
        b'a' => Ok(None),
        _ => Err(strange("steps together")),
    };
    Some(letters.into_iter().map(share).collect())
}

fn completed(count: usize, value: Value) -> Option<Vec<StoreResult<Option<Value>>>> {
    let letters = letters(value, count, b'd')?;
    let share = |letter| match letter {
        b'd' => Ok(Some(Value::BulkString(b"applied".to_vec()))),
        b'a' => Ok(None),
        _ => Err(strange("steps together")),
    };
    Some(letters.into_iter().map(share).collect())
}
