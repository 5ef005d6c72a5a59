//! Waiting for replicas, on connections of its own: WAIT holds up whatever comes behind it.
//!
//! WAIT covers what its own connection has written. So a connection that waits first writes a mark:
//! the replicas that have the mark have all that the server wrote before it, by whomever. Those who
//! come while others wait share the next mark.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justonce_core::store::{Carrier, LaneLimits, Lanes, Told, Waiting};
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::{Cmd, Value};

use crate::error::{Trouble, strange};
use crate::fitness::Fitness;
use crate::link::{Link, Live, Target};

/// How many connections wait at once: while no replica answers, another goes out after each
/// such part of the wait, so that nobody waits much longer than the wait itself.
const AT_ONCE: u32 = 16;
/// How many steps share a mark. They cost nothing, so this is only a bound.
const TOGETHER: usize = 4096;
/// A write that leaves nothing.
const MARK: &str = include_str!("../lua/mark.lua");

/// How many replicas must have a write before it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// A step that waits for its replicas.
pub(crate) struct Wrote {
    /// The server that has it.
    pub(crate) server: Arc<str>,
    /// A key in the bucket of its record.
    pub(crate) mark: Vec<u8>,
}

/// Those who wait for the replicas of one server.
pub(crate) type Confirmations = Lanes<Marks>;

/// Writes marks and waits for them.
pub(crate) struct Marks {
    confirm: Confirm,
    free: Arc<Free>,
}

/// The connections that nobody waits by.
struct Free {
    links: Mutex<Vec<Link>>,
    make: Box<dyn Fn() -> Link + Send + Sync>,
}

/// A connection that somebody waits by.
pub(crate) struct Taken {
    live: Live,
    link: Option<Link>,
    free: Arc<Free>,
}

impl Taken {
    /// A connection to this very server, made anew if this one leads to another: the one that was
    /// the primary before.
    async fn to(&mut self, server: &str) -> StoreResult<&Live> {
        if self.live.server() != server
            && let Some(link) = &self.link
        {
            self.live.give_up();
            self.live = link.live().await?;
        }
        if self.live.server() == server {
            return Ok(&self.live);
        }
        // It is another one, or the same one has come back: what the replicas have of its writes
        // says nothing about a step before.
        let message = "the server that took the step is not the primary any more";
        Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.free.put(link);
        }
    }
}

impl Free {
    fn take(&self) -> Link {
        let link = self.links.lock().unwrap_or_else(PoisonError::into_inner).pop();
        link.unwrap_or_else(|| (self.make)())
    }

    fn put(&self, link: Link) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).push(link);
    }
}

impl Marks {
    /// Those who wait for the replicas of the server at a target.
    pub(crate) fn lanes(
        confirm: Confirm,
        reply_timeout: Duration,
        fitness: Option<Arc<Fitness>>,
        target: impl Fn() -> Target + Send + Sync + 'static,
    ) -> Arc<Confirmations> {
        let timeout = reply_timeout + confirm.within;
        let make = Box::new(move || Link::new(target(), timeout, fitness.clone()));
        let free = Arc::new(Free { links: Mutex::default(), make });
        let patience = (confirm.within / AT_ONCE).max(Duration::from_millis(1));
        let at_most = usize::try_from(AT_ONCE).unwrap_or(1);
        let limits = LaneLimits { alone: 2, at_most, together: TOGETHER, patience };
        Lanes::new(Self { confirm, free }, limits)
    }

    async fn answer(&self, mut way: Taken, wrote: &Wrote) -> StoreResult<Option<i64>> {
        let live = way.to(&wrote.server).await.map_err(|error| not_waited_for(&error))?;
        match self.marked(live, &wrote.mark).await {
            Ok(have) => Ok(Some(have)),
            // The slot is on its way to another node.
            Err(Trouble::Ask(_) | Trouble::TryAgain(_) | Trouble::Moved) => Ok(None),
            Err(trouble) => {
                live.give_up();
                Err(not_waited_for(&trouble.into_error()))
            }
        }
    }

    /// How many replicas have everything that the server wrote before.
    async fn marked(&self, live: &Live, mark: &[u8]) -> Result<i64, Trouble> {
        let mut both = redis::pipe();
        both.cmd("EVAL").arg(MARK).arg(1).arg(mark).add_command(self.confirm.wait());
        let replies = live.send_all(&both).await?;
        let mut have = None;
        for reply in replies {
            have = Some(reply.extract_error().map_err(Trouble::of)?);
        }
        match have {
            Some(Value::Int(have)) => Ok(have),
            _ => Err(Trouble::Final(strange("WAIT"))),
        }
    }
}

impl Carrier for Marks {
    type Load = Wrote;
    /// How many replicas have the step; nothing if no mark can be written just now.
    type Answer = Option<i64>;
    type Way = Taken;

    /// A mark says something about the writes of its own server only.
    fn joins(&self, going: &[Waiting<Self>], next: &Wrote) -> bool {
        going.first().is_none_or(|first| first.load.server == next.server)
    }

    async fn way(&self) -> StoreResult<Taken> {
        let link = self.free.take();
        match link.live().await {
            Ok(live) => Ok(Taken { live, link: Some(link), free: Arc::clone(&self.free) }),
            Err(error) => {
                self.free.put(link);
                Err(error)
            }
        }
    }

    async fn carry(&self, way: StoreResult<Taken>, going: Vec<Waiting<Self>>) -> Told<Option<i64>> {
        let answer = match (way, going.first()) {
            (Ok(way), Some(first)) => self.answer(way, &first.load).await,
            (Err(error), _) => Err(not_waited_for(&error)),
            (Ok(_), None) => return Vec::new(),
        };
        going.into_iter().map(|waiting| (waiting.caller, answer.clone())).collect()
    }
}

impl Confirm {
    fn wait(self) -> Cmd {
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX));
        wait
    }

    /// Waits by the connection that wrote, and holds up whatever comes behind.
    pub(crate) async fn wait_by(self, live: &Live) -> StoreResult<i64> {
        match live.send(&self.wait()).await {
            Ok(Value::Int(have)) => Ok(have),
            Ok(_) => Err(strange("WAIT")),
            Err(trouble) => Err(not_waited_for(&trouble.into_error())),
        }
    }

    /// Whether so many replicas are enough.
    pub(crate) fn met_by(self, have: i64) -> StoreResult<()> {
        let Self { replicas, within } = self;
        if have >= i64::from(replicas) {
            return Ok(());
        }
        let message = format!(
            "the primary has the step, but only {have} of {replicas} replicas confirmed it within \
             {within:?}: a failover may lose it"
        );
        Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, message))
    }
}

/// The primary has the step, and nobody knows who else.
fn not_waited_for(error: &StoreError) -> StoreError {
    // A server that has become a replica sends away whoever waits, and refuses whoever comes, in
    // words that nothing else is said with: the primary is elsewhere now.
    let kind = match error.kind() {
        StoreErrorKind::Protocol => StoreErrorKind::Unavailable,
        kind => kind,
    };
    let message = format!("the replicas could not be waited for: {error}");
    StoreError::maybe_applied(kind, message).because(error.clone())
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").field("confirm", &self.confirm).finish_non_exhaustive()
    }
}
