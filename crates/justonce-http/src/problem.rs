//! The errors of the layer, as RFC 9457 problem details.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

/// The path of the problem pages, below the base address.
pub(crate) const PAGES: &str = "/.well-known/idempotency/errors/";

macro_rules! problems {
    ($(
        $(#[$doc:meta])*
        $name:ident $code:literal $status:literal $retryable:literal $title:literal;
    )*) => {
        /// The code of a problem. Each has a page in `docs/errors`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[$doc])* $name,)*
        }

        impl ProblemCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Its default status.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => status($status),)* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }

            /// A short summary.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Its page, as Markdown.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$name => {
                        include_str!(concat!("../errors/", $code, ".md"))
                    })*
                }
            }
        }
    };
}

problems! {
    /// The route requires a key, and the request has none.
    KeyMissing "key-missing" 400 false "An idempotency key is required";
    /// The key is malformed or does not have the form that the route requires.
    KeyInvalid "key-invalid" 400 false "The idempotency key is not valid";
    /// The key was used for a different request.
    KeyMismatch "key-mismatch" 422 false "The idempotency key was used for a different request";
    /// The caller is not identified, and another caller has used the key.
    CallerDiffers "caller-differs" 409 false "Another caller has used this idempotency key";
    /// The token of the request does not identify its caller.
    CredentialsInvalid "credentials-invalid" 401 false "The credentials are not valid";
    /// It cannot be verified now who sends the request.
    IdentityUnavailable "identity-unavailable" 503 true "The caller cannot be verified at present";
    /// The operation is being executed.
    InFlight "in-flight" 409 true "The first request with this key is still running";
    /// It is unknown whether the operation took effect.
    OutcomeUnknown "outcome-unknown" 409 false "It is not known whether the operation took effect";
    /// Another attempt took the operation over.
    Superseded "superseded" 409 true "Another attempt took this operation over";
    /// The retention is over, and late retries are refused.
    KeyExpired "key-expired" 409 false "The idempotency key has expired";
    /// The request body is over the limit.
    BodyTooLarge "body-too-large" 413 false "The request body is too large";
    /// The request body did not arrive whole.
    BodyIncomplete "body-incomplete" 400 true "The request body did not arrive whole";
    /// The operation is done, but its response was too large to be stored.
    OutcomeTooLarge "outcome-too-large" 409 false "The stored response is too large to be replayed";
    /// The store cannot be reached.
    StoreUnavailable "store-unavailable" 503 true "The idempotency store is not available";
    /// Too many operations are being executed.
    Overloaded "overloaded" 503 true "Too many operations are running";
    /// The caller has reached one of its limits.
    LimitReached "limit-reached" 429 true "A limit of this caller is reached";
    /// Admin API: there is no such record.
    RecordNotFound "record-not-found" 404 false "There is no such record";
    /// Admin API: the operation is not unknown and cannot be resolved.
    NotUnknown "not-unknown" 409 false "The operation is not unknown";
    /// Admin API: the operation has not ended and cannot be expired or erased.
    NotEnded "not-ended" 409 false "The operation has not ended";
    /// Admin API: the saga is not stuck and cannot be retried.
    NotStuck "not-stuck" 409 false "The saga is not stuck";
    /// Admin API: the operation has been claimed again since.
    FenceOld "fence-old" 409 false "The fence is not that of the last claim";
    /// The request is malformed or ambiguous.
    RequestInvalid "request-invalid" 400 false "The request cannot be understood";
    /// The service was not reached: nothing was executed.
    UpstreamUnreachable "upstream-unreachable" 502 true "The service could not be reached";
    /// The service failed after it may have begun.
    UpstreamFailed "upstream-failed" 502 false "The service failed before it answered";
}

const fn status(code: u16) -> StatusCode {
    match StatusCode::from_u16(code) {
        Ok(status) => status,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Response extension: the `instance` of a problem, as the caller gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance(pub uuid::Uuid);

/// Response extension: what a problem says, for callers that it has another form for.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: ProblemCode,
    pub(crate) status: StatusCode,
    pub(crate) detail: Arc<str>,
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(code: ProblemCode, detail: &str) -> Self {
        Self { code, status: code.status(), detail: detail.into(), retry_after: None }
    }
}

/// One occurrence of a problem.
#[derive(Debug)]
pub struct Problem {
    code: ProblemCode,
    status: StatusCode,
    detail: String,
    retry_after: Option<Duration>,
    location: Option<HeaderValue>,
    /// Rare: most problems should not be larger for it.
    authenticate: Option<Box<HeaderValue>>,
    more: Map<String, Value>,
}

impl Problem {
    /// An occurrence of a problem. The detail tells the caller what to do, without internals.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            retry_after: None,
            location: None,
            authenticate: None,
            more: Map::new(),
        }
    }

    /// Sets the status. Default: [`ProblemCode::status`].
    #[must_use]
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets `Retry-After`. Default: none.
    #[must_use]
    pub const fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    pub(crate) fn location(mut self, location: Option<HeaderValue>) -> Self {
        self.location = location;
        self
    }

    /// Sets `WWW-Authenticate`.
    pub(crate) fn authenticate(mut self, challenge: HeaderValue) -> Self {
        self.authenticate = Some(Box::new(challenge));
        self
    }

    /// Adds a member to the body.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> ProblemCode {
        self.code
    }

    /// The response. `base` is where the pages are served; `instance` identifies it in the log.
    #[must_use]
    pub fn into_response(self, base: &str, instance: uuid::Uuid) -> Response<Bytes> {
        let code = self.code.as_str();
        let page = format!("{base}{PAGES}{code}");
        let mut body = json!({
            "type": page,
            "title": self.code.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "instance": format!("urn:uuid:{instance}"),
            "retryable": self.code.is_retryable(),
            "code": code,
        });
        if let Some(members) = body.as_object_mut() {
            members.extend(self.more);
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status;
        let retry_after = self.retry_after;
        let refusal =
            Refusal { status: self.status, retry_after, ..Refusal::new(self.code, &self.detail) };
        response.extensions_mut().insert(refusal);
        response.extensions_mut().insert(Instance(instance));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(link) = HeaderValue::try_from(format!("<{page}>; rel=\"describedby\"")) {
            headers.insert(LINK, link);
        }
        if let Some(time) = self.retry_after {
            let seconds = time.as_millis().div_ceil(1000).clamp(1, u128::from(u32::MAX));
            if let Ok(value) = HeaderValue::try_from(seconds.to_string()) {
                headers.insert(RETRY_AFTER, value);
            }
        }
        if let Some(location) = self.location {
            headers.insert(LOCATION, location);
        }
        if let Some(challenge) = self.authenticate {
            headers.insert(WWW_AUTHENTICATE, *challenge);
        }
        response
    }
}
