//! Answers, read whole.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

/// An answer, read whole.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    /// Reads an answer to its clean end.
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body that ends cleanly");
        let trailers = body.trailers().cloned();
        let body = body.to_bytes();
        Self { status: parts.status, headers: parts.headers, body, trailers }
    }

    pub(crate) fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// A header's only value, or nothing.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.get_all(name).iter();
        let first = all.next()?;
        assert!(all.next().is_none(), "{name} was sent more than once");
        Some(first.to_str().expect("a readable header"))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// The code of the problem that this answer is; nothing if it is none.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.header("content-type") != Some("application/problem+json") {
            return None;
        }
        Some(self.json().get("code")?.as_str()?.to_owned())
    }
}

/// Asserts that an answer is this problem with this status.
#[track_caller]
pub(crate) fn assert_problem(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.code(), reply.problem().as_deref()), (status, Some(code)), "{reply:?}");
}
