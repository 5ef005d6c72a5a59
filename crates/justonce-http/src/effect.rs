//! Whether an operation took effect, judged by the response of the service.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::grpc_status::GrpcStatus;
use crate::headers::OUTCOME;

const GRPC_STATUS: &str = "grpc-status";

/// Whether an operation took effect. An inner service reports it as an extension of its response;
/// without one the status decides ([`StatusRules`]).
///
/// A service in another process reports it with the header `Idempotency-Outcome`: `final`,
/// `retryable` or `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseEffect {
    /// The operation is done: the response is stored and replayed.
    Final,
    /// The operation certainly did not take effect: the key is released.
    NotExecuted,
    /// The operation may have taken effect.
    Unknown,
}

/// Response extension: the body was ended only by the end of its connection, so it may be
/// incomplete. The caller gets it, but it is not stored as final: the operation becomes unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unframed;

/// Response extension: why it is unknown whether the operation took effect. It is kept with the
/// record and logged for operators; callers never see it.
///
/// ```
/// use justonce_http::{Cause, ResponseEffect};
///
/// let mut response = http::Response::new("no response");
/// response.extensions_mut().insert(ResponseEffect::Unknown);
/// response.extensions_mut().insert(Cause::new("phase=waiting error=reset"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause(Arc<str>);

impl Cause {
    /// A short description.
    #[must_use]
    pub fn new(cause: impl Into<Arc<str>>) -> Self {
        Self(cause.into())
    }

    /// The description.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Response extension: the address of the upstream that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamName(pub Arc<str>);

/// The effect that each response status stands for.
///
/// ```
/// use justonce_http::{ResponseEffect, StatusRules};
///
/// // The default: 2xx, 3xx and 4xx are final, except those that mean "not now" or "not you"; after
/// // 5xx the effect is unknown.
/// let rules = StatusRules::default();
/// assert_eq!(rules.of(201), ResponseEffect::Final);
/// assert_eq!(rules.of(429), ResponseEffect::NotExecuted);
/// assert_eq!(rules.of(500), ResponseEffect::Unknown);
///
/// // Customised: this service rolls back before it answers 5xx, and 404 is temporary.
/// let rules = StatusRules::default()
///     .class(5, ResponseEffect::NotExecuted)
///     .code(404, ResponseEffect::NotExecuted);
/// assert_eq!(rules.of(500), ResponseEffect::NotExecuted);
/// ```
///
/// Responses of gRPC are judged by their own status:
///
/// ```
/// use justonce_http::{GrpcStatus, ResponseEffect, StatusRules};
///
/// // The default.
/// let rules = StatusRules::default();
/// assert_eq!(rules.of_grpc(GrpcStatus::NotFound), ResponseEffect::Final);
/// assert_eq!(rules.of_grpc(GrpcStatus::Unavailable), ResponseEffect::Unknown);
///
/// // Customised: this service refuses with `ABORTED` before it does anything.
/// let rules = StatusRules::default().grpc(GrpcStatus::Aborted, ResponseEffect::NotExecuted);
/// assert_eq!(rules.of_grpc(GrpcStatus::Aborted), ResponseEffect::NotExecuted);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatusRules {
    classes: Vec<(u16, ResponseEffect)>,
    codes: Vec<(u16, ResponseEffect)>,
    grpc: Vec<(GrpcStatus, ResponseEffect)>,
}

impl StatusRules {
    /// Sets the effect of all statuses of a class: 5 for 5xx.
    #[must_use]
    pub fn class(mut self, class: u16, effect: ResponseEffect) -> Self {
        self.classes.push((class, effect));
        self
    }

    /// Sets the effect of one status. It takes precedence over its class.
    #[must_use]
    pub fn code(mut self, code: u16, effect: ResponseEffect) -> Self {
        self.codes.push((code, effect));
        self
    }

    /// Sets the effect of a status of gRPC.
    #[must_use]
    pub fn grpc(mut self, status: GrpcStatus, effect: ResponseEffect) -> Self {
        self.grpc.push((status, effect));
        self
    }

    /// The effect of a status of gRPC.
    #[must_use]
    pub fn of_grpc(&self, status: GrpcStatus) -> ResponseEffect {
        self.configured_grpc(status).unwrap_or_else(|| grpc_by_default(status))
    }

    fn configured_grpc(&self, status: GrpcStatus) -> Option<ResponseEffect> {
        self.grpc.iter().rev().find(|(other, _)| *other == status).map(|(_, effect)| *effect)
    }

    /// The effect of a status.
    #[must_use]
    pub fn of(&self, code: u16) -> ResponseEffect {
        self.configured(code).unwrap_or_else(|| by_default(code))
    }

    fn configured(&self, code: u16) -> Option<ResponseEffect> {
        let code_rule = self.codes.iter().rev().find(|(other, _)| *other == code);
        let class_rule = || self.classes.iter().rev().find(|(class, _)| *class == code / 100);
        code_rule.or_else(class_rule).map(|(_, effect)| *effect)
    }

    /// The effect of a response: as the service reports it, otherwise by its status.
    pub(crate) fn effect(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        reported: Option<ResponseEffect>,
    ) -> ResponseEffect {
        if status.is_informational() {
            // The final response was still to come.
            return ResponseEffect::Unknown;
        }
        if let Some(effect) = reported.or_else(|| from_header(headers)) {
            return effect;
        }
        let code = status.as_u16();
        let try_later = code == 503 && headers.contains_key(RETRY_AFTER);
        let default = || if try_later { ResponseEffect::NotExecuted } else { by_default(code) };
        self.configured(code).unwrap_or_else(default)
    }

    /// The effect of a response to a call of gRPC, as far as its head tells: nothing if the status
    /// of gRPC is to come in the trailers.
    pub(crate) fn grpc_effect_of_head(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        reported: Option<ResponseEffect>,
    ) -> Option<ResponseEffect> {
        let is_told = reported.is_some() || headers.contains_key(OUTCOME);
        // Whatever is no success does not come from gRPC, but from something on the way.
        (is_told || !status.is_success()).then(|| self.effect(status, headers, reported))
    }

    /// The effect of a whole response to a call of gRPC, with what its head tells. Without trailers
    /// its status is in the head.
    pub(crate) fn grpc_effect(
        &self,
        of_head: Option<ResponseEffect>,
        headers: &HeaderMap,
        (trailers, has_data): (Option<&HeaderMap>, bool),
    ) -> ResponseEffect {
        let told_last = trailers.and_then(from_header);
        match (of_head, told_last) {
            // What contradicts itself permits no other execution.
            (Some(first), Some(last)) if first != last => return ResponseEffect::Unknown,
            (Some(effect), _) | (None, Some(effect)) => return effect,
            (None, None) => {}
        }
        let last = trailers.unwrap_or(headers);
        let is_in_both = trailers.is_some() && headers.contains_key(GRPC_STATUS);
        let status = grpc_status(last).filter(|_| !is_in_both);
        let Some(status) = status else { return ResponseEffect::Unknown };
        if let Some(effect) = self.configured_grpc(status) {
            return effect;
        }
        let may_retry = || has_pushback(last) || last.contains_key(RETRY_AFTER);
        let default = match status {
            GrpcStatus::Unavailable | GrpcStatus::ResourceExhausted if may_retry() => {
                ResponseEffect::NotExecuted
            }
            status => grpc_by_default(status),
        };
        match default {
            // Who has answered with a message has done something before.
            ResponseEffect::NotExecuted if has_data => ResponseEffect::Unknown,
            effect => effect,
        }
    }
}

/// The status in the trailers of gRPC, or in a head without any; nothing if there is not one, or
/// none that is known.
pub(crate) fn grpc_status(last: &HeaderMap) -> Option<GrpcStatus> {
    let mut lines = last.get_all(GRPC_STATUS).into_iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => GrpcStatus::from_code(line.as_bytes()),
        _ => None,
    }
}

/// Whether a service says when the call is to be repeated. A negative number says never.
fn has_pushback(last: &HeaderMap) -> bool {
    let pushback = last.get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok());
    pushback.is_some_and(|value| value.parse::<u32>().is_ok())
}

/// What the caller or the state is to blame for is final. "Not you" is said before anything is
/// executed. Everything else may come after some of it was done: `RESOURCE_EXHAUSTED` too, which
/// libraries also send for a response that is too large.
const fn grpc_by_default(status: GrpcStatus) -> ResponseEffect {
    match status {
        GrpcStatus::Ok
        | GrpcStatus::InvalidArgument
        | GrpcStatus::NotFound
        | GrpcStatus::AlreadyExists
        | GrpcStatus::FailedPrecondition
        | GrpcStatus::Aborted
        | GrpcStatus::OutOfRange
        | GrpcStatus::Unimplemented => ResponseEffect::Final,
        GrpcStatus::PermissionDenied | GrpcStatus::Unauthenticated => ResponseEffect::NotExecuted,
        GrpcStatus::Cancelled
        | GrpcStatus::Unknown
        | GrpcStatus::DeadlineExceeded
        | GrpcStatus::ResourceExhausted
        | GrpcStatus::Internal
        | GrpcStatus::Unavailable
        | GrpcStatus::DataLoss => ResponseEffect::Unknown,
    }
}

fn from_header(headers: &HeaderMap) -> Option<ResponseEffect> {
    let mut lines = headers.get_all(&OUTCOME).into_iter();
    match (lines.next()?.as_bytes(), lines.next()) {
        (b"final", None) => Some(ResponseEffect::Final),
        (b"retryable", None) => Some(ResponseEffect::NotExecuted),
        // A value that is not understood does not permit another execution.
        _ => Some(ResponseEffect::Unknown),
    }
}

/// "Not you" and "not now" are answered before anything is executed. Of 5xx only "not implemented"
/// and "version not supported" are final.
const fn by_default(code: u16) -> ResponseEffect {
    match code {
        401 | 403 | 407 | 408 | 421 | 425 | 429 => ResponseEffect::NotExecuted,
        501 | 505 => ResponseEffect::Final,
        500..=599 => ResponseEffect::Unknown,
        _ => ResponseEffect::Final,
    }
}
