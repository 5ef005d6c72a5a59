//! Failed exchanges, and what they say about the operation.

use http::{HeaderValue, Response, StatusCode, header};
use justonce_http::ResponseEffect;

use super::response_body::ProxyBody;

/// Why an exchange failed; an extension of the response about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyError {
    /// Not a byte of the request was sent: it certainly did not take effect.
    NotReached,
    /// The connection failed, or the response was no HTTP, after the request may have been sent: it
    /// may have taken effect.
    Failed,
    /// The response has more headers than are accepted, or longer ones: it may have taken effect.
    HeadTooLarge,
    /// No response began in time: it may have taken effect.
    TimedOut,
    /// The client's body failed while it was being sent: the upstream is healthy, and may have
    /// acted on what it saw.
    RequestBroken,
}

impl ProxyError {
    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotReached | Self::Failed | Self::HeadTooLarge => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::RequestBroken => StatusCode::BAD_REQUEST,
        }
    }

    /// What it says about the operation.
    #[must_use]
    pub fn effect(self) -> ResponseEffect {
        match self {
            Self::NotReached => ResponseEffect::NotExecuted,
            Self::Failed | Self::HeadTooLarge | Self::TimedOut | Self::RequestBroken => {
                ResponseEffect::Unknown
            }
        }
    }
}

/// The response for a failed exchange. The error and its [`ResponseEffect`] are extensions of it.
#[must_use]
pub fn error_response(error: ProxyError, detail: &'static str) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::text(detail));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.extensions_mut().insert(error);
    response.extensions_mut().insert(error.effect());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_sent_is_not_executed() {
        let table = [
            (ProxyError::NotReached, 502, ResponseEffect::NotExecuted),
            (ProxyError::Failed, 502, ResponseEffect::Unknown),
            (ProxyError::HeadTooLarge, 502, ResponseEffect::Unknown),
            (ProxyError::TimedOut, 504, ResponseEffect::Unknown),
            (ProxyError::RequestBroken, 400, ResponseEffect::Unknown),
        ];
        for (error, status, effect) in table {
            let response = error_response(error, "why");
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.extensions().get(), Some(&error));
            assert_eq!(response.extensions().get(), Some(&effect));
        }
    }
}
