//! What went wrong on the way to an upstream, and what that says about the operation.

use http::{HeaderValue, Response, StatusCode, header};
use justonce::http::Verdict;

use super::ProxyBody;

/// What went wrong on the way to an upstream; an extension of our own answer about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Not a byte of the request was sent: it certainly did not take effect.
    NotReached,
    /// The connection failed, or what came back was no HTTP, after the request may have been
    /// sent: it may have taken effect.
    Failed,
    /// The answer has more headers than are read, or longer ones: it may have taken effect.
    HeadTooLarge,
    /// No answer began in time: it may have taken effect.
    TimedOut,
    /// The client's own body broke off while it was being passed on: nothing is wrong with the
    /// upstream, and it may have acted on what it saw.
    RequestBroken,
}

impl Trouble {
    /// The status that clients get.
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
    pub fn verdict(self) -> Verdict {
        match self {
            Self::NotReached => Verdict::NotExecuted,
            Self::Failed | Self::HeadTooLarge | Self::TimedOut | Self::RequestBroken => {
                Verdict::Unknown
            }
        }
    }
}

/// The one place where our own answers about upstreams are made. The trouble and its
/// [`Verdict`] are extensions of the answer.
#[must_use]
pub fn trouble_response(trouble: Trouble, detail: &'static str) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::text(detail));
    *response.status_mut() = trouble.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.extensions_mut().insert(trouble);
    response.extensions_mut().insert(trouble.verdict());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_sent_is_not_executed() {
        let table = [
            (Trouble::NotReached, 502, Verdict::NotExecuted),
            (Trouble::Failed, 502, Verdict::Unknown),
            (Trouble::HeadTooLarge, 502, Verdict::Unknown),
            (Trouble::TimedOut, 504, Verdict::Unknown),
            (Trouble::RequestBroken, 400, Verdict::Unknown),
        ];
        for (trouble, status, verdict) in table {
            let response = trouble_response(trouble, "why");
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.extensions().get(), Some(&trouble));
            assert_eq!(response.extensions().get(), Some(&verdict));
        }
    }
}
