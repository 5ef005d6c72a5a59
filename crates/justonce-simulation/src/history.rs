//! What happened in a run, as those outside of the stores saw it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use justonce_core::{Fence, UnknownReason};
use tokio::time::Instant;

use crate::clock::JumpingClock;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Milliseconds since the run began.
    pub(crate) at: u64,
    /// The same by the clock of the stores.
    pub(crate) store_at: i64,
    pub(crate) what: What,
}

/// What the network says of a claim that was made when nobody expected it any more.
pub(crate) const LATE_CLAIM: &str = "begin is carried out late: claimed";

/// What a call of an engine is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The name of the call.
    pub(crate) call: usize,
    pub(crate) process: usize,
    /// How often the process was started before.
    pub(crate) life: u32,
    pub(crate) operation: usize,
    pub(crate) request: u8,
    /// The engine does not drop its handler.
    pub(crate) by_hand: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Asked {
        of: Subject,
        how: String,
    },
    /// A handler was started.
    Started {
        of: Subject,
        fence: Fence,
        attempt: u32,
        checkpoint: u32,
    },
    /// A handler has saved the checkpoint with this number, and was told so.
    Saved {
        of: Subject,
        fence: Fence,
        number: u32,
    },
    /// A handler ended by itself.
    Said {
        of: Subject,
        fence: Fence,
        said: Said,
    },
    /// A handler was dropped before it ended.
    Cut {
        of: Subject,
        fence: Fence,
    },
    Answered {
        of: Subject,
        answer: Answer,
    },
    /// The caller dropped its future.
    Left {
        of: Subject,
    },
    Crashed {
        process: usize,
    },
    Restarted {
        process: usize,
    },
    Stalled {
        process: usize,
        stands: bool,
    },
    Partitioned {
        process: usize,
        cut: bool,
    },
    Jumped {
        by: i64,
    },
    Operator {
        order: Order,
    },
    /// The order was carried out, or not, or it is not known.
    Obeyed {
        order: Order,
        result: Obeyed,
    },
    /// The operations that are listed as unknown after all faults have ended.
    Listed {
        unknown: Vec<usize>,
    },
    /// From here on nothing goes wrong any more.
    FaultsEnded,
    /// From here on nobody but the last callers calls, and all others were answered.
    AllAnswered,
    /// Something that must not happen in any run.
    Broken {
        why: String,
    },
    /// A store call that did not go as it should, for readers.
    Network {
        process: usize,
        operation: Option<usize>,
        what: String,
    },
    /// What the disk did, for readers.
    Disk {
        what: String,
    },
}

/// What a handler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Ok(String),
    Retryable(String),
    Permanent(String),
    NotExecuted,
    Unknown,
    Unclassified(String),
    Panicked,
}

/// What a caller was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Executed(String),
    Replayed(String),
    Failed(String),
    FailedBefore(String),
    Released,
    Busy { fence: Fence, running: bool },
    Unknown { fence: Fence, reason: UnknownReason },
    Abandoned(UnknownReason),
    Unclassified(String),
    Superseded(Option<String>),
    Mismatch,
    Expired,
    NothingExecuted(String),
    Overloaded,
    NotStored(String),
    Stopped,
    Panicked,
}

/// What an operator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) process: usize,
    pub(crate) life: u32,
    pub(crate) operation: usize,
    pub(crate) fence: Fence,
    pub(crate) kind: OrderKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    Complete(String),
    Fail(String),
    Release,
    Expire,
    Erase,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obeyed {
    Done,
    Refused,
    NotKnown,
}

impl Answer {
    /// The outcome, or the failure that is replayed, whosoever gave it.
    pub(crate) fn reply(&self) -> Option<&str> {
        match self {
            Self::Executed(text)
            | Self::Replayed(text)
            | Self::FailedBefore(text)
            | Self::Superseded(Some(text)) => Some(text),
            _ => None,
        }
    }
}

/// The history of a run, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<LogInner>);

#[derive(Debug)]
struct LogInner {
    start: Instant,
    clock: JumpingClock,
    events: Mutex<Vec<Event>>,
}

impl Log {
    pub(crate) fn new(clock: JumpingClock) -> Self {
        Self(Arc::new(LogInner { start: Instant::now(), clock, events: Mutex::default() }))
    }

    pub(crate) fn add(&self, what: What) {
        let at = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let event = Event { at, store_at: self.0.clock.shows(), what };
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// The calls of an operation, or of all, that are still under way: see [`open_calls`].
    pub(crate) fn open_calls(&self, operation: Option<usize>) -> BTreeSet<usize> {
        open_calls(&self.0.events.lock().unwrap_or_else(PoisonError::into_inner), operation)
    }

    /// All events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl What {
    /// Which operation it is about; nothing if it is about all.
    pub(crate) fn operation(&self) -> Option<usize> {
        match self {
            Self::Asked { of, .. }
            | Self::Started { of, .. }
            | Self::Saved { of, .. }
            | Self::Said { of, .. }
            | Self::Cut { of, .. }
            | Self::Answered { of, .. }
            | Self::Left { of } => Some(of.operation),
            Self::Operator { order } | Self::Obeyed { order, .. } => Some(order.operation),
            Self::Network { operation, .. } => *operation,
            _ => None,
        }
    }
}

/// The calls whose process lives and that nobody has answered yet, or whose handler still runs.
fn open_calls(events: &[Event], operation: Option<usize>) -> BTreeSet<usize> {
    let mut open: Vec<Subject> = Vec::new();
    let close = |open: &mut Vec<Subject>, of: &Subject| {
        if let Some(at) = open.iter().position(|other| other == of) {
            open.swap_remove(at);
        }
    };
    for event in events {
        match &event.what {
            // Once as a call, and once more for its handler: that may go on without a caller.
            What::Asked { of, .. } | What::Started { of, .. } => open.push(*of),
            What::Answered { of, .. }
            | What::Left { of }
            | What::Said { of, .. }
            | What::Cut { of, .. } => close(&mut open, of),
            What::Crashed { process } => open.retain(|other| other.process != *process),
            _ => {}
        }
    }
    let wanted = |of: &&Subject| operation.is_none_or(|wanted| wanted == of.operation);
    open.iter().filter(wanted).map(|of| of.call).collect()
}

/// The whole history, a line for each event; or that of one operation with what concerned all of
/// them. There, of calls that are answered alike one after the other, only the first is shown.
pub(crate) fn text(events: &[Event], operation: Option<usize>) -> String {
    let concerns = |event: &&Event| {
        operation.is_none() || event.what.operation().is_none_or(|of| Some(of) == operation)
    };
    let events: Vec<&Event> = events.iter().filter(concerns).collect();
    let mut lines = String::new();
    let mut at = 0;
    while let Some(event) = events.get(at) {
        let rest = events.get(at..).filter(|_| operation.is_some());
        let alike = calls_alike(rest.unwrap_or_default());
        let shown = if alike > 1 { 2 } else { 1 };
        for event in events.iter().skip(at).take(shown) {
            lines.push_str(&format!("{event}\n"));
        }
        if alike > 1 {
            let until = events.get(at + 2 * alike - 1).map_or(event.at, |last| last.at);
            let more = alike - 1;
            lines.push_str(&format!("{:>9} s  … {more} more alike\n", seconds(until)));
        }
        at += if alike > 1 { 2 * alike } else { 1 };
    }
    lines
}

/// How many calls at the beginning were asked and answered at once, all with the same answer.
fn calls_alike(events: &[&Event]) -> usize {
    let answer = |pair: &[&Event]| match pair {
        [asked, answered] => match (&asked.what, &answered.what) {
            (What::Asked { of: one, how }, What::Answered { of, answer }) if one == of => {
                Some((of.operation, of.request, of.process, how.clone(), answer.clone()))
            }
            _ => None,
        },
        _ => None,
    };
    let mut answers = events.chunks_exact(2).map(answer);
    match answers.next().flatten() {
        None => 0,
        first => 1 + answers.take_while(|other| *other == first).count(),
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9} s  ", seconds(self.at))?;
        if self.store_at != self.at.cast_signed() {
            write!(f, "(store {} ms) ", self.store_at)?;
        }
        self.what.fmt(f)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} of operation {}", self.call, self.operation)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked { of, how } => {
                let Subject { process, request, .. } = of;
                write!(f, "{of}: asked in process {process}, request {request}, {how}")
            }
            Self::Started { of, fence, attempt, checkpoint } => write!(
                f,
                "{of}: handler started with fence {fence}, attempt {attempt}, from checkpoint \
                 {checkpoint}"
            ),
            Self::Saved { of, number, .. } => write!(f, "{of}: checkpoint {number} is saved"),
            Self::Said { of, said, .. } => write!(f, "{of}: handler said {said:?}"),
            Self::Cut { of, .. } => write!(f, "{of}: handler was dropped"),
            Self::Answered { of, answer } => write!(f, "{of}: answered {answer:?}"),
            Self::Left { of } => write!(f, "{of}: the caller left"),
            Self::Crashed { process } => write!(f, "process {process} crashed"),
            Self::Restarted { process } => write!(f, "process {process} was started again"),
            Self::Stalled { process, stands: true } => {
                write!(f, "the callers' runtime of process {process} stands still")
            }
            Self::Stalled { process, .. } => {
                write!(f, "the callers' runtime of process {process} goes on")
            }
            Self::Partitioned { process, cut: true } => {
                write!(f, "process {process} does not reach the store")
            }
            Self::Partitioned { process, .. } => {
                write!(f, "process {process} reaches the store again")
            }
            Self::Jumped { by } => write!(f, "the store's clock jumped by {by} ms"),
            Self::Operator { order } => write!(f, "{order} was ordered"),
            Self::Obeyed { order, result } => write!(f, "{order}: {result:?}"),
            Self::Listed { unknown } => write!(f, "listed as unknown: operations {unknown:?}"),
            Self::FaultsEnded => write!(f, "nothing goes wrong from here on"),
            Self::AllAnswered => write!(f, "all callers were answered; the last ones call"),
            Self::Broken { why } => write!(f, "broken: {why}"),
            Self::Network { process, what, .. } => write!(f, "  network of {process}: {what}"),
            Self::Disk { what } => write!(f, "  disk: {what}"),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, operation, fence, kind, .. } = self;
        write!(f, "operator in process {process}: {kind:?} of operation {operation}, fence {fence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_answered_alike_are_shown_once() {
        let of =
            |call| Subject { call, process: 0, life: 0, operation: 0, request: 0, by_hand: false };
        let call = |number: usize, answer| {
            let at = number as u64 * 250;
            let event = |what| Event { at, store_at: at.cast_signed(), what };
            let asked = What::Asked { of: of(number), how: String::new() };
            [event(asked), event(What::Answered { of: of(number), answer })]
        };
        let same = (1..=9).flat_map(|number| call(number, Answer::Mismatch));
        let events: Vec<_> = same.chain(call(10, Answer::Expired)).collect();
        let shown = text(&events, Some(0));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert_eq!(lines[2], "    2.250 s  … 8 more alike");
        assert_eq!(text(&events, None).lines().count(), 20);
    }
}
