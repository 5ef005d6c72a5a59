//! The settings of a route.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use justonce_core::{DEFAULT_WAIT, JsonPointer, OnLapsed, Operation, Policy};

use crate::caller_limits::CallerLimits;
use crate::claims::Claim;
use crate::cors::Cors;
use crate::effect::StatusRules;
use crate::key::{KeyFormat, KeySource, KeySyntax};

/// The longest request body, in bytes, by default.
pub const DEFAULT_REQUEST_BYTES: usize = 1024 * 1024;
/// The longest response body that is stored, in bytes, by default.
pub const DEFAULT_STORED_BYTES: usize = justonce_core::MAX_BODY_BYTES;
/// How long a caller may ask to wait with `Prefer: wait`, by default.
pub const DEFAULT_MAX_WAIT: Duration = DEFAULT_WAIT;

/// Whether requests need a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPresence {
    /// Requests without a key are refused.
    Required,
    /// Requests without a key pass unprotected.
    Optional,
    /// Keys are not read: all requests pass unprotected.
    Off,
}

/// How a duplicate of a running operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenBusy {
    /// 409 at once, with `Retry-After`.
    Reject,
    /// The outcome, if it is stored within this time; 409 otherwise.
    Wait(Duration),
}

/// How requests are handled while the store cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenStoreDown {
    /// 503: nothing is executed.
    Refuse,
    /// Requests pass unprotected, and their responses say so.
    Pass,
}

/// How paths with an escaped slash (`%2F`), a backslash or a zero byte are handled. Some services
/// take those for the end of a segment, others for a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEscapes {
    /// The request is refused.
    Refuse,
    /// They are part of a name.
    Allow,
}

/// A part of the scope of a route's keys.
///
/// If a scope has parts for the caller and a request has none of them, the caller is not
/// identified. Then a response is replayed only for the very same `Cookie` header, and every other
/// caller gets 409 `caller-differs`.
///
/// ```
/// use justonce_http::{Rule, ScopePart};
///
/// // The default: `Authorization`, else `X-Api-Key`, else the client's certificate.
/// let default = Rule::default();
///
/// // Customised: a cookie identifies callers, a header their tenants.
/// let scope = vec![ScopePart::Cookie("session".into()), ScopePart::Tenant("x-tenant".parse()?)];
/// let shop = Rule::default().scope(scope);
/// # Ok::<(), http::header::InvalidHeaderName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopePart {
    /// The caller's credential: `Authorization`, or `X-Api-Key` without it, or its
    /// [`ClientCertificate`](crate::ClientCertificate) without both. Only its hash is kept.
    Caller,
    /// The caller's credential, from a header. Only its hash is kept.
    Principal(HeaderName),
    /// The caller's credential, from all cookies of this name. Only its hash is kept.
    Cookie(Box<str>),
    /// The caller's address, a [`ClientAddress`](crate::ClientAddress). Only its hash is kept. Who
    /// shares an address is one caller, and who changes it is another one.
    Address,
    /// A claim of the caller's token, after a [`TokenVerifier`](crate::TokenVerifier) has verified
    /// it. Only the hash of issuer and claim is kept. A request with a key and without a valid
    /// token that has the claim gets 401 `credentials-invalid`.
    Claim(Claim),
    /// The caller's certificate, a [`ClientCertificate`](crate::ClientCertificate). Only its hash
    /// is kept.
    Certificate,
    /// The tenant, from a header. It is kept as it is, so that operators can find it.
    Tenant(HeaderName),
}

impl fmt::Display for ScopePart {
    /// As configurations write it: `header:x-user`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => f.write_str("caller"),
            Self::Principal(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Address => f.write_str("address"),
            Self::Claim(claim) => write!(f, "jwt:{claim}"),
            Self::Certificate => f.write_str("certificate"),
            Self::Tenant(name) => write!(f, "tenant:header:{name}"),
        }
    }
}

/// How bodies are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyMode {
    /// Byte by byte.
    Raw,
    /// As JSON, if it is JSON: key order and white space do not count.
    Json(JsonFields),
    /// As a form: the order of different fields does not count.
    Form,
    /// Not at all.
    Ignored,
}

/// Which fields of a JSON body count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonFields {
    /// All.
    All,
    /// All except these.
    Without(Vec<JsonPointer>),
    /// Only these.
    Only(Vec<JsonPointer>),
}

/// Declares each setting once: its field, its default, and the method that sets it.
macro_rules! settings {
    (
        $(#[$struct_attribute:meta])*
        $settings:ident
        { $($(#[$doc:meta])* $visibility:vis $name:ident: $kind:ty = $default:expr;)* }
        $(with own methods
        { $($(#[$own_doc:meta])* $own:ident: $own_kind:ty = $own_default:expr;)* })?
    ) => {
        $(#[$struct_attribute])*
        #[non_exhaustive]
        pub struct $settings {
            $($(#[$doc])* $visibility $name: $kind,)*
            $($($(#[$own_doc])* pub(crate) $own: $own_kind,)*)?
        }

        impl Default for $settings {
            fn default() -> Self {
                Self { $($name: $default,)* $($($own: $own_default,)*)? }
            }
        }

        impl $settings {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(self, $name: $kind) -> Self {
                    Self { $name, ..self }
                }
            )*
        }
    };
}

settings! {
    /// What is part of a request's fingerprint, beside its method, path and host.
    ///
    /// ```
    /// use justonce_http::{BodyMode, FingerprintRule};
    ///
    /// // The default: the query and the body as JSON.
    /// let default = FingerprintRule::default();
    ///
    /// // Customised: the bytes of the body and a header.
    /// let bytes = FingerprintRule::default()
    ///     .body(BodyMode::Raw)
    ///     .query(false)
    ///     .headers(vec![http::header::ACCEPT]);
    /// ```
    #[derive(Clone, Debug, PartialEq, Eq)]
    FingerprintRule
    {
        /// How the body is compared. Default: all of it as JSON.
        pub body: BodyMode = BodyMode::Json(JsonFields::All);
        /// Whether the query counts. Default: yes.
        pub query: bool = true;
        /// The headers that count. Default: none.
        pub headers: Vec<HeaderName> = Vec::new();
    }
}

settings! {
    /// The settings of a route.
    ///
    /// ```
    /// use justonce_http::{KeyPresence, KeySyntax, Rule, WhenBusy};
    /// use justonce_core::{OnLapsed, Policy};
    /// use std::time::Duration;
    ///
    /// // The default: optional keys, scoped by caller, `hold`, 24 h.
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
    Rule
    {
        /// Where the key comes from. Default: the header `Idempotency-Key`.
        pub(crate) key_source: KeySource = KeySource::default();
        /// Whether requests need a key. Default: [`KeyPresence::Optional`].
        pub(crate) key_presence: KeyPresence = KeyPresence::Optional;
        /// How keys are written in headers. Default: [`KeySyntax::Lenient`].
        pub(crate) key_syntax: KeySyntax = KeySyntax::Lenient;
        /// The form of keys. Default: 1 to 255 characters.
        pub(crate) key_format: KeyFormat = KeyFormat::default();
        /// How paths with `%2F`, a backslash or `%00` are handled. Default:
        /// [`PathEscapes::Refuse`].
        pub(crate) path_escapes: PathEscapes = PathEscapes::Refuse;
        /// The scope of keys. Default: the caller's ([`ScopePart::Caller`]).
        pub(crate) scope: Vec<ScopePart> = vec![ScopePart::Caller];
        /// What is part of the fingerprint. Default: the query and the JSON body.
        pub(crate) fingerprint: FingerprintRule = FingerprintRule::default();
        /// How a duplicate of a running operation is answered. Default: [`WhenBusy::Reject`].
        pub(crate) when_busy: WhenBusy = WhenBusy::Reject;
        /// How long a caller may ask to wait with `Prefer: wait`. Default: [`DEFAULT_MAX_WAIT`].
        pub(crate) max_wait: Duration = DEFAULT_MAX_WAIT;
        /// The effect that each status stands for. Default: [`StatusRules::default`].
        pub(crate) statuses: StatusRules = StatusRules::default();
        /// The longest request body, in bytes. Default: [`DEFAULT_REQUEST_BYTES`].
        pub(crate) max_request_bytes: usize = DEFAULT_REQUEST_BYTES;
        /// How requests are handled while the store cannot be reached. Default:
        /// [`WhenStoreDown::Refuse`].
        pub(crate) when_store_down: WhenStoreDown = WhenStoreDown::Refuse;
        /// More response headers that are not stored. Default: none.
        pub(crate) drop_headers: Vec<HeaderName> = Vec::new();
        /// Response headers that are stored although they are cookies or authenticate. Default:
        /// none.
        pub(crate) keep_headers: Vec<HeaderName> = Vec::new();
    }
    with own methods
    {
        policy: Arc<Policy> =
            Arc::new(Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap_or_default());
        handler_timeout: Option<Duration> = None;
        max_stored_bytes: usize = DEFAULT_STORED_BYTES;
        /// The headers that are not stored with a request; `None` if requests are not stored.
        store_requests: Option<Vec<HeaderName>> = None;
        /// What each caller may use; `None` if nothing is limited.
        caller_limits: Option<CallerLimits> = None;
        /// Which web pages may read the responses; `None` if nothing is said about that.
        cors: Option<Cors> = None;
    }
}

impl Rule {
    /// Sets lease, retention and what happens on a lapse and on a failure. Default: the core's
    /// defaults with [`OnLapsed::Hold`].
    #[must_use]
    pub fn with_policy(self, policy: impl Into<Arc<Policy>>) -> Self {
        Self { policy: policy.into(), ..self }
    }

    /// Sets how long the inner service may take. Default: as long as the lease can be renewed.
    #[must_use]
    pub fn handler_timeout(self, timeout: Duration) -> Self {
        Self { handler_timeout: Some(timeout), ..self }
    }

    /// Sets the longest response body that is stored, in bytes. Default and maximum:
    /// [`DEFAULT_STORED_BYTES`].
    #[must_use]
    pub fn max_stored_bytes(self, max: usize) -> Self {
        Self { max_stored_bytes: max.min(DEFAULT_STORED_BYTES), ..self }
    }

    /// Stores each request with its claim, without these headers, so that a completer can resend it
    /// ([`Protected::resend`](crate::Protected::resend)) if its owner dies. The policy must be
    /// [`OnLapsed::Resume`]: only then the next claim gets the request. Default: requests are not
    /// stored.
    ///
    /// Requests hold credentials and personal data, and so does the store then.
    ///
    /// ```
    /// use justonce_core::{OnLapsed, Policy};
    /// use justonce_http::Rule;
    ///
    /// let orders = Rule::default()
    ///     .with_policy(Policy::builder().on_lapsed(OnLapsed::Resume).build()?)
    ///     .store_requests(vec![http::header::COOKIE]);
    /// # Ok::<(), justonce_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn store_requests(self, without: Vec<HeaderName>) -> Self {
        Self { store_requests: Some(without), ..self }
    }

    /// Sets what each caller may use. Default: no limits.
    ///
    /// A caller is what `scope` identifies. One that is not identified is known by its
    /// [`ClientAddress`](crate::ClientAddress); without that extension of their requests, all of
    /// them are one caller.
    #[must_use]
    pub fn caller_limits(self, limits: CallerLimits) -> Self {
        Self { caller_limits: Some(limits).filter(|limits| !limits.is_none()), ..self }
    }

    /// Sets which web pages may read the responses, the layer's own among them. Default: no CORS
    /// headers are added.
    #[must_use]
    pub fn cors(self, cors: Cors) -> Self {
        Self { cors: Some(cors), ..self }
    }

    /// Whether callers are told apart by claims of their tokens.
    pub(crate) fn has_claims(&self) -> bool {
        self.scope.iter().any(|part| matches!(part, ScopePart::Claim(_)))
    }

    pub(crate) fn with_timeout(&self, operation: Operation) -> Operation {
        match self.handler_timeout {
            Some(timeout) => operation.with_handler_timeout(timeout),
            None => operation,
        }
    }

    /// The policy of the route's operations.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
