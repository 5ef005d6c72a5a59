//! What a route promises and demands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use justonce_core::{DEFAULT_WAIT, JsonPointer, OnLapsed, Policy};

use crate::key::{KeyFormat, KeySource, KeySyntax};
use crate::status::StatusRules;

/// The longest request body, in bytes, unless a rule says otherwise.
pub const DEFAULT_REQUEST_BYTES: usize = 1024 * 1024;
/// The longest response body that is stored, in bytes, unless a rule says otherwise.
pub const DEFAULT_STORED_BYTES: usize = justonce_core::MAX_BODY_BYTES;
/// How long a caller may ask to wait with `Prefer: wait`, unless a rule says otherwise.
pub const DEFAULT_MAX_WAIT: Duration = DEFAULT_WAIT;

/// What a route promises and demands. Every setting has a default.
///
/// ```
/// use justonce_http::{KeyPresence, KeySyntax, Rule, WhenBusy};
/// use justonce_core::{OnLapsed, Policy};
/// use std::time::Duration;
///
/// // The default: optional keys, scoped by who asks, `hold`, 24 h.
/// let default = Rule::default();
/// assert_eq!(default.policy().on_lapsed(), OnLapsed::Hold);
///
/// // Customised.
/// let payments = Rule::default()
///     .key_presence(KeyPresence::Required)
///     .key_syntax(KeySyntax::Strict)
///     .when_busy(WhenBusy::Wait(Duration::from_secs(10)))
///     .with_policy(
///         Policy::builder()
///             .on_lapsed(OnLapsed::Hold)
///             .retention(Duration::from_secs(72 * 3600))
///             .build()?,
///     );
/// # Ok::<(), justonce_core::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) key_source: KeySource,
    pub(crate) key_presence: KeyPresence,
    pub(crate) key_syntax: KeySyntax,
    pub(crate) key_format: KeyFormat,
    pub(crate) path_escapes: PathEscapes,
    pub(crate) scope: Vec<ScopePart>,
    pub(crate) fingerprint: FingerprintRule,
    pub(crate) when_busy: WhenBusy,
    pub(crate) max_wait: Duration,
    pub(crate) policy: Arc<Policy>,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) statuses: StatusRules,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_stored_bytes: usize,
    pub(crate) when_store_down: WhenStoreDown,
    pub(crate) drop_headers: Vec<HeaderName>,
    pub(crate) keep_headers: Vec<HeaderName>,
    /// The headers that are not stored with a request; nothing if requests are not stored.
    pub(crate) completed: Option<Vec<HeaderName>>,
}

/// What a request without a key meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    /// It is refused.
    Required,
    /// It passes unprotected.
    Optional,
    /// Keys are not looked at: everything passes unprotected.
    Off,
}

/// What a duplicate of a running operation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// 409 at once, with `Retry-After`.
    Reject,
    /// The outcome, if it comes within this time; 409 otherwise.
    Wait(Duration),
}

/// What a request meets while the store cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenStoreDown {
    /// 503: nothing is executed.
    Refuse,
    /// It passes unprotected, and its answer says so.
    Pass,
}

/// What a request meets whose path has an escaped slash (`%2F`), a backslash or a zero byte: what
/// some services take for the end of a segment, and others for a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEscapes {
    /// It is refused.
    Refuse,
    /// It counts as it is: as a part of a name.
    Allow,
}

/// A part of the namespace in which a route's keys live.
///
/// If a scope has parts for the caller and a request shows none of them, nobody knows who asks.
/// Then an answer is repeated only for the very same `Cookie` header, and every other caller gets
/// 409 `caller-differs`.
///
/// ```
/// use justonce_http::{Rule, ScopePart};
///
/// // The default: `Authorization`, else `X-Api-Key`.
/// let default = Rule::default();
///
/// // Customised: a cookie tells callers apart, a header their tenants.
/// let scope = vec![ScopePart::Cookie("session".into()), ScopePart::Tenant("x-tenant".parse()?)];
/// let shop = Rule::default().scope(scope);
/// # Ok::<(), http::header::InvalidHeaderName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopePart {
    /// The caller's credential: `Authorization`, or `X-Api-Key` where there is none. Only its hash
    /// is kept.
    Caller,
    /// The caller's credential, from a header. Only its hash is kept.
    Principal(HeaderName),
    /// The caller's credential, from the cookie of this name; of several, all count. Only its hash
    /// is kept.
    Cookie(Box<str>),
    /// The tenant, from a header. It is kept as it is, so that operators can find it.
    Tenant(HeaderName),
}

/// What counts as the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintRule {
    /// How the body is compared.
    pub body: BodyMode,
    /// Whether the query counts.
    pub query: bool,
    /// Headers that count.
    pub headers: Vec<HeaderName>,
}

/// How bodies are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyMode {
    /// Byte for byte.
    Raw,
    /// As JSON where it is JSON: key order and white space do not count.
    Json(Places),
    /// As a form: the order of different fields does not count.
    Form,
    /// Not at all.
    Ignored,
}

/// Which places of a JSON body count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// All.
    All,
    /// All but these.
    Without(Vec<JsonPointer>),
    /// These only.
    Only(Vec<JsonPointer>),
}

impl ScopePart {
    /// Whether it tells callers apart.
    #[must_use]
    pub const fn names_caller(&self) -> bool {
        !matches!(self, Self::Tenant(_))
    }
}

impl fmt::Display for ScopePart {
    /// As configurations write it: `header:x-user`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => f.write_str("caller"),
            Self::Principal(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Tenant(name) => write!(f, "tenant:header:{name}"),
        }
    }
}

impl Default for FingerprintRule {
    fn default() -> Self {
        Self { body: BodyMode::Json(Places::All), query: true, headers: Vec::new() }
    }
}

impl Default for Rule {
    fn default() -> Self {
        let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap_or_default();
        Self {
            key_source: KeySource::default(),
            key_presence: KeyPresence::Optional,
            key_syntax: KeySyntax::Lenient,
            key_format: KeyFormat::default(),
            path_escapes: PathEscapes::Refuse,
            scope: vec![ScopePart::Caller],
            fingerprint: FingerprintRule::default(),
            when_busy: WhenBusy::Reject,
            max_wait: DEFAULT_MAX_WAIT,
            policy: Arc::new(policy),
            handler_timeout: None,
            statuses: StatusRules::default(),
            max_request_bytes: DEFAULT_REQUEST_BYTES,
            max_stored_bytes: DEFAULT_STORED_BYTES,
            when_store_down: WhenStoreDown::Refuse,
            drop_headers: Vec::new(),
            keep_headers: Vec::new(),
            completed: None,
        }
    }
}

impl Rule {
    /// Where the key comes from. Default: the header `Idempotency-Key`.
    #[must_use]
    pub fn key_source(mut self, source: KeySource) -> Self {
        self.key_source = source;
        self
    }

    /// What a request without a key meets. Default: [`KeyPresence::Optional`].
    #[must_use]
    pub const fn key_presence(mut self, presence: KeyPresence) -> Self {
        self.key_presence = presence;
        self
    }

    /// How keys are written in headers. Default: [`KeySyntax::Lenient`].
    #[must_use]
    pub const fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.key_syntax = syntax;
        self
    }

    /// What keys must look like. Default: 1 to 255 visible characters.
    #[must_use]
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.key_format = format;
        self
    }

    /// What a request meets whose path has `%2F`, a backslash or `%00` in it. Default:
    /// [`PathEscapes::Refuse`].
    #[must_use]
    pub const fn path_escapes(mut self, rule: PathEscapes) -> Self {
        self.path_escapes = rule;
        self
    }

    /// Whose namespace keys live in. Default: the caller's ([`ScopePart::Caller`]).
    #[must_use]
    pub fn scope(mut self, parts: Vec<ScopePart>) -> Self {
        self.scope = parts;
        self
    }

    /// What counts as the same request, on the same host. Default: method, path, query and JSON
    /// body.
    #[must_use]
    pub fn fingerprint(mut self, rule: FingerprintRule) -> Self {
        self.fingerprint = rule;
        self
    }

    /// What a duplicate of a running operation gets. Default: [`WhenBusy::Reject`].
    #[must_use]
    pub const fn when_busy(mut self, rule: WhenBusy) -> Self {
        self.when_busy = rule;
        self
    }

    /// How long a caller may ask to wait with `Prefer: wait`. Default: [`DEFAULT_MAX_WAIT`].
    #[must_use]
    pub const fn max_wait(mut self, max: Duration) -> Self {
        self.max_wait = max;
        self
    }

    /// Leases, retention and what becomes of lapsed claims. Default: the core's defaults with
    /// [`OnLapsed::Hold`].
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// How long the inner service may take. Default: as long as the lease can be renewed.
    #[must_use]
    pub const fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// Which answers are stored. Default: [`StatusRules::default`].
    #[must_use]
    pub fn statuses(mut self, rules: StatusRules) -> Self {
        self.statuses = rules;
        self
    }

    /// The longest request body, in bytes. Default: [`DEFAULT_REQUEST_BYTES`].
    #[must_use]
    pub const fn max_request_bytes(mut self, max: usize) -> Self {
        self.max_request_bytes = max;
        self
    }

    /// The longest response body that is stored, in bytes. Default and most:
    /// [`DEFAULT_STORED_BYTES`].
    #[must_use]
    pub fn max_stored_bytes(mut self, max: usize) -> Self {
        self.max_stored_bytes = max.min(DEFAULT_STORED_BYTES);
        self
    }

    /// What a request meets while the store cannot be reached. Default:
    /// [`WhenStoreDown::Refuse`].
    #[must_use]
    pub const fn when_store_down(mut self, rule: WhenStoreDown) -> Self {
        self.when_store_down = rule;
        self
    }

    /// Headers of answers that are not stored, beside those that never are. Default: none.
    #[must_use]
    pub fn drop_headers(mut self, names: Vec<HeaderName>) -> Self {
        self.drop_headers = names;
        self
    }

    /// Headers that are stored although they would not be: cookies and authentication. Default:
    /// none.
    #[must_use]
    pub fn keep_headers(mut self, names: Vec<HeaderName>) -> Self {
        self.keep_headers = names;
        self
    }

    /// Stores each request with its claim, all but these of its headers, so that a completer can
    /// send it again ([`Protected::resend`](crate::Protected::resend)) if its owner dies. The
    /// policy must be [`OnLapsed::Resume`]: only then the next claim gets the request. Default:
    /// requests are not stored.
    ///
    /// Requests hold credentials and personal data, and so does the store then.
    ///
    /// ```
    /// use justonce_core::{OnLapsed, Policy};
    /// use justonce_http::Rule;
    ///
    /// let orders = Rule::default()
    ///     .with_policy(Policy::builder().on_lapsed(OnLapsed::Resume).build()?)
    ///     .completed(vec![http::header::COOKIE]);
    /// # Ok::<(), justonce_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn completed(mut self, without: Vec<HeaderName>) -> Self {
        self.completed = Some(without);
        self
    }

    /// The promise.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
