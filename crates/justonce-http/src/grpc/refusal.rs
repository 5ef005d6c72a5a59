//! What the layer answers itself, in the form of gRPC: the status in the head, and nothing else.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::body::ResponseBody;
use crate::grpc_status::GrpcStatus;
use crate::headers::PROBLEM;
use crate::outcome::Replay;
use crate::problem::{ProblemCode, Refusal};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// After how many milliseconds a client may repeat a call; not at all if it is negative.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const NEVER: HeaderValue = HeaderValue::from_static("-1");
/// What a message cannot contain as it is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The form that responses to calls have.
pub(crate) trait GrpcResponse {
    /// The same in the form of gRPC, if it is the layer's own and has another one.
    fn into_grpc(self) -> Self;
}

impl<B> GrpcResponse for Response<ResponseBody<B>> {
    fn into_grpc(self) -> Self {
        let refusal = match self.extensions().get::<Refusal>() {
            Some(refusal) => refusal.clone(),
            None if is_foreign_replay(&self) => Refusal::new(ProblemCode::OutcomeTooLarge, FOREIGN),
            None => return self,
        };
        let mut response = self.map(|_| ResponseBody::whole(bytes::Bytes::new()));
        *response.status_mut() = StatusCode::OK;
        let status = status_of(refusal.code, refusal.status);
        let headers = response.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, GRPC);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(STATUS, HeaderValue::from(u16::from(status.code())));
        headers.insert(MESSAGE, message(&refusal.detail));
        headers.insert(PROBLEM, HeaderValue::from_static(refusal.code.as_str()));
        match refusal.retry_after {
            Some(time) => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                headers.insert(PUSHBACK, HeaderValue::from(millis));
            }
            None if !refusal.code.is_retryable() => {
                headers.insert(PUSHBACK, NEVER);
            }
            None => {}
        }
        response
    }
}

/// Whether a stored outcome is a success that is no response of gRPC: one that an operator or a
/// probe gave. Everything else, such as the 404 of something on the way, is repeated as it was:
/// callers read its status.
fn is_foreign_replay<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    response.extensions().get::<Replay>().is_some()
        && response.status().is_success()
        && !kind.is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

/// The trailers of a response that was broken off after its beginning had been sent.
pub(crate) fn broken_off() -> HeaderMap {
    let code = ProblemCode::UpstreamFailed;
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from(u16::from(GrpcStatus::Unknown.code())));
    trailers.insert(MESSAGE, message(BROKEN_OFF));
    trailers.insert(PROBLEM, HeaderValue::from_static(code.as_str()));
    trailers.insert(PUSHBACK, NEVER);
    trailers
}

fn message(detail: &str) -> HeaderValue {
    let escaped = utf8_percent_encode(detail, ESCAPED).to_string();
    HeaderValue::try_from(escaped).unwrap_or_else(|_| HeaderValue::from_static("refused"))
}

/// The status of a problem. Clients repeat what is `UNAVAILABLE` by themselves, so that is only for
/// what was not executed.
fn status_of(code: ProblemCode, status: StatusCode) -> GrpcStatus {
    match code {
        ProblemCode::KeyMissing | ProblemCode::KeyInvalid | ProblemCode::RequestInvalid => {
            GrpcStatus::InvalidArgument
        }
        ProblemCode::KeyMismatch | ProblemCode::CallerDiffers | ProblemCode::KeyExpired => {
            GrpcStatus::FailedPrecondition
        }
        ProblemCode::InFlight | ProblemCode::Superseded => GrpcStatus::Aborted,
        ProblemCode::OutcomeUnknown => GrpcStatus::Unknown,
        ProblemCode::UpstreamFailed if status == StatusCode::GATEWAY_TIMEOUT => {
            GrpcStatus::DeadlineExceeded
        }
        ProblemCode::UpstreamFailed => GrpcStatus::Unknown,
        // It is done, and what came of it is not there.
        ProblemCode::OutcomeTooLarge => GrpcStatus::AlreadyExists,
        // As gRPC's own libraries say it.
        ProblemCode::BodyTooLarge | ProblemCode::LimitReached => GrpcStatus::ResourceExhausted,
        ProblemCode::BodyIncomplete => GrpcStatus::Cancelled,
        ProblemCode::StoreUnavailable
        | ProblemCode::Overloaded
        | ProblemCode::UpstreamUnreachable => GrpcStatus::Unavailable,
        _ => of_http(status),
    }
}

fn of_http(status: StatusCode) -> GrpcStatus {
    match status.as_u16() {
        401 => GrpcStatus::Unauthenticated,
        403 => GrpcStatus::PermissionDenied,
        404 => GrpcStatus::NotFound,
        409 => GrpcStatus::FailedPrecondition,
        429 => GrpcStatus::ResourceExhausted,
        400..=499 => GrpcStatus::InvalidArgument,
        503 => GrpcStatus::Unavailable,
        _ => GrpcStatus::Unknown,
    }
}

const FOREIGN: &str = "The operation is done and is not executed again, but what is stored of it \
                       is no response of gRPC. Fetch the result from where the service has it.";
const BROKEN_OFF: &str = "The service broke off in the middle of its response. The operation may \
                          have taken effect. Repeat the call with the same key, never with a new \
                          one.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_executed_is_unavailable() {
        for code in ProblemCode::ALL {
            let status = status_of(*code, code.status());
            assert_ne!(status, GrpcStatus::Ok, "{code:?}");
            if status == GrpcStatus::Unavailable {
                assert!(code.is_retryable(), "{code:?}");
            }
        }
        let timed_out = status_of(ProblemCode::UpstreamFailed, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(timed_out, GrpcStatus::DeadlineExceeded);
        assert_eq!(of_http(StatusCode::UNAUTHORIZED), GrpcStatus::Unauthenticated);
    }

    #[test]
    fn messages_are_escaped() {
        assert_eq!(message("100% – ok\n"), "100%25 %E2%80%93 ok%0A");
    }
}
