//! Whether an operation can still reach an end.

use justonce_core::{
    Action, Answer, Claimed, Entry, Existing, Fence, Timestamp, Token, UnknownSince,
};

use super::model::{Protocol, after};
use crate::setup::TICK;
use crate::world::{Request, Truth, Verdict, World};

/// The most calls it may take.
const MAX_CALLS: u32 = 8;
/// The most time it may take, in ticks: a lease, a back-off and a little more.
const MAX_TICKS: u32 = 12;
/// A token that no worker of the model ever has.
const FRESH: Token = Token(1000);

/// What can still happen after every worker has crashed.
struct Rest {
    entry: Option<Entry>,
    now: Timestamp,
    issued: Fence,
}

impl Protocol {
    /// Whether the operation still reaches an end if all workers crash now, no request under way
    /// ever arrives, and then a single caller retries until it gets an outcome, executes what it
    /// may, and what is unknown is resolved. That is stronger than that some path to an end exists.
    pub(super) fn can_end(&self, world: &World) -> bool {
        let mut rest =
            Rest { entry: world.entry.clone(), now: world.now, issued: world.book.issued };
        let latest = world.now.after(TICK * MAX_TICKS);
        for _ in 0..MAX_CALLS {
            match self.apply(&mut rest, &self.action(Request::Begin(FRESH))) {
                Answer::Claimed(Claimed { fence, .. }) => {
                    let complete = self.action(Request::Say(fence, Verdict::Complete));
                    return self.apply(&mut rest, &complete) == Answer::Applied;
                }
                Answer::Existing(Existing::Busy(busy)) => {
                    rest.now = rest.now.after(busy.left);
                    if busy.left.is_zero() || rest.now > latest {
                        return false;
                    }
                }
                Answer::Existing(Existing::Unknown(UnknownSince { fence, .. }))
                | Answer::Held(UnknownSince { fence, .. }) => {
                    let truth = match world.book.effects {
                        0 => Truth::Nothing,
                        _ => Truth::Happened,
                    };
                    let resolve = self.action(Request::Resolve(fence, truth));
                    if self.apply(&mut rest, &resolve) != Answer::Applied {
                        return false;
                    }
                }
                Answer::Existing(Existing::Completed(_) | Existing::Failed(_)) => return true,
                Answer::Existing(Existing::Expired(_)) => return true,
                _ => return false,
            }
        }
        false
    }

    fn apply(&self, rest: &mut Rest, action: &Action) -> Answer {
        rest.issued = rest.issued.next();
        let decision = (self.rules)(rest.entry.as_ref(), action, rest.now, rest.issued);
        rest.entry = after(rest.entry.take(), decision.change);
        decision.answer
    }
}
