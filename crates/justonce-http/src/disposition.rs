//! How a request was answered: a label for metrics and the log.

use justonce_core::{Existing, Ran, RunError};

use crate::problem::ProblemCode;

macro_rules! dispositions {
    ($($(#[$doc:meta])* $name:ident $label:literal $duplicate:literal;)*) => {
        /// How a request was answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Disposition {
            $($(#[$doc])* $name,)*
        }

        impl Disposition {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(crate) const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Whether the operation had begun before.
            pub(crate) const fn is_duplicate(self) -> bool {
                match self { $(Self::$name => $duplicate,)* }
            }
        }
    };
}

dispositions! {
    /// Executed, and its outcome is stored.
    Executed "executed" false;
    /// Executed, and the key was released.
    Released "released" false;
    /// It is unknown whether it was executed.
    Abandoned "abandoned" false;
    /// Executed, but its outcome could not be stored yet.
    NotStored "not_stored" false;
    /// Executed, but another attempt took over.
    Superseded "superseded" false;
    /// Answered with the stored outcome.
    Replayed "replayed" true;
    /// Refused: the operation is running.
    InFlight "in_flight" true;
    /// Refused: the operation is unknown.
    Unknown "unknown" true;
    /// Refused: the key was used for a different request.
    Mismatch "mismatch" true;
    /// Refused: the cookies are not those of the first request.
    CallerDiffers "caller_differs" true;
    /// Refused: the retention is over.
    Expired "expired" true;
    /// Refused for its key or its body.
    Refused "refused" false;
    /// Refused: the store is not available.
    StoreUnavailable "store_unavailable" false;
    /// Refused: the circuit breaker is open.
    BreakerOpen "breaker_open" false;
    /// Refused: too many operations or bodies.
    Overloaded "overloaded" false;
    /// Passed without protection.
    Unprotected "unprotected" false;
}

impl Disposition {
    pub(crate) fn of(ran: &Result<Ran, RunError>) -> Self {
        match ran {
            Ok(Ran::Executed(_) | Ran::Failed(_)) => Self::Executed,
            Ok(Ran::Released) => Self::Released,
            Ok(Ran::Abandoned(_) | Ran::Unclassified(_)) => Self::Abandoned,
            Ok(Ran::Superseded(_) | Ran::FailedBefore(_)) => Self::Superseded,
            Ok(Ran::Replayed(_)) => Self::Replayed,
            Ok(Ran::Busy(_)) => Self::InFlight,
            Ok(Ran::Unknown(_)) => Self::Unknown,
            Ok(Ran::Mismatch) => Self::Mismatch,
            Ok(Ran::Expired(_)) => Self::Expired,
            Err(RunError::NotStored { .. }) => Self::NotStored,
            Err(RunError::Overloaded { .. }) => Self::Overloaded,
            Err(_) => Self::StoreUnavailable,
        }
    }

    pub(crate) const fn of_existing(existing: &Existing) -> Self {
        match existing {
            Existing::Completed(_) | Existing::Failed(_) => Self::Replayed,
            Existing::Busy(_) => Self::InFlight,
            Existing::Unknown(_) => Self::Unknown,
            Existing::Mismatch => Self::Mismatch,
            Existing::Expired(_) => Self::Expired,
        }
    }

    pub(crate) const fn of_problem(code: ProblemCode) -> Self {
        match code {
            ProblemCode::StoreUnavailable => Self::StoreUnavailable,
            ProblemCode::Overloaded => Self::Overloaded,
            ProblemCode::UpstreamUnreachable => Self::BreakerOpen,
            ProblemCode::KeyMismatch => Self::Mismatch,
            ProblemCode::CallerDiffers => Self::CallerDiffers,
            _ => Self::Refused,
        }
    }
}
