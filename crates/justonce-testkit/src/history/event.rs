//! What can be seen from outside.

/// One request of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) usize);

/// What a client heard of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done, and this is the answer.
    Acknowledged {
        /// What the service said.
        answer: String,
        /// Whether it was said to be the stored outcome of an earlier request.
        replayed: bool,
    },
    /// Refused: the operation is running.
    InFlight,
    /// Refused: it is unknown what became of the operation.
    Unknown,
    /// Refused before anything was executed: try again.
    Unavailable,
    /// It may have been executed, and its outcome belongs to another attempt or to none yet.
    Superseded,
    /// The connection broke, or the client ran out of patience.
    Lost,
    /// What should not have been answered.
    Surprise(String),
}

impl Reply {
    /// The answer of the service itself.
    pub fn done(answer: impl Into<String>) -> Self {
        Self::Acknowledged { answer: answer.into(), replayed: false }
    }

    /// A stored outcome.
    pub fn replay(answer: impl Into<String>) -> Self {
        Self::Acknowledged { answer: answer.into(), replayed: true }
    }

    /// Whether the request that was answered so may have been executed.
    pub(super) const fn may_have_executed(&self) -> bool {
        match self {
            // The owner of an operation that became unknown meanwhile hears so too.
            Self::Unknown | Self::Superseded | Self::Lost | Self::Surprise(_) => true,
            // An owner whose claim was taken over is answered with the outcome of the other.
            Self::Acknowledged { .. } => true,
            Self::InFlight | Self::Unavailable => false,
        }
    }
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client is about to send a request for an operation.
    Asked {
        /// The operation.
        operation: String,
        /// Which request.
        request: RequestId,
    },
    /// The service did it, and is about to answer so.
    Effect {
        /// The operation.
        operation: String,
        /// What it answers. Give each effect an answer of its own, and replies can be told apart.
        answer: String,
    },
    /// The client has its reply.
    Replied {
        /// To which request.
        request: RequestId,
        /// What it heard.
        reply: Reply,
    },
}
