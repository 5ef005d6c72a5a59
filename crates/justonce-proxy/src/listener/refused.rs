//! Requests that no service sees: the listener cannot read them, or must not.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Uri, Version};

/// A request that began and that the listener has not handed to its service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RefusedRequest<'r> {
    /// The address of whoever has connected, if it is known.
    pub client: Option<IpAddr>,
    /// The version of HTTP.
    pub version: Version,
    /// What was asked for, if its head could be read.
    pub head: Option<(&'r Method, &'r Uri)>,
    /// What it was answered with; nothing if the connection was closed without an answer.
    pub status: Option<StatusCode>,
    /// Why.
    pub reason: RefusalReason,
    /// How long its head took to come, as far as it came.
    pub elapsed: Duration,
}

/// Why no service has seen a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Its head is no HTTP, or can be read in two ways.
    Malformed,
    /// Its head is longer than is allowed.
    TooLarge,
    /// Its head did not come in time.
    TimedOut,
    /// Its client left before the end of its head, or the gateway had to stop.
    CutOff,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Malformed, Self::TooLarge, Self::TimedOut, Self::CutOff];

    /// Its name in small letters.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::TimedOut => "timed_out",
            Self::CutOff => "cut_off",
        }
    }
}

/// Hears of requests that no service sees, to log and count them.
pub trait RefusalObserver: Send + Sync + 'static {
    /// A request was refused. Must not block.
    fn refused(&self, request: &RefusedRequest<'_>);
}

/// The observer of a listener, if it has one.
#[derive(Clone, Default)]
pub(super) struct Observer(pub(super) Option<Arc<dyn RefusalObserver>>);

impl Observer {
    pub(super) fn refused(&self, request: &RefusedRequest<'_>) {
        self.0.iter().for_each(|observer| observer.refused(request));
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}

/// How a connection ended.
pub(super) enum Ended {
    /// As one side wished, or with an error.
    By(hyper::Result<()>),
    /// The head of a request, or the next request, did not come in time.
    TimedOut,
    /// The listener must end.
    Aborted,
}

impl Ended {
    /// What that means for a request whose head was not read to its end.
    pub(super) fn of_a_head(&self) -> (RefusalReason, Option<StatusCode>) {
        let Self::By(Err(error)) = self else {
            let reason = match self {
                Self::TimedOut => RefusalReason::TimedOut,
                _ => RefusalReason::CutOff,
            };
            return (reason, None);
        };
        // As the HTTP implementation answers by itself.
        if error.is_parse_too_large() {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return (RefusalReason::TooLarge, Some(status));
        }
        if !error.is_parse() {
            return (RefusalReason::CutOff, None);
        }
        match error.to_string().contains("URI too long") {
            true => (RefusalReason::TooLarge, Some(StatusCode::URI_TOO_LONG)),
            false => (RefusalReason::Malformed, Some(StatusCode::BAD_REQUEST)),
        }
    }
}
