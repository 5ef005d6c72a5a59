//! Calls and their messages.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, request};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::BoxError;

/// The content type of all calls. What follows says how messages are written.
const GRPC: &[u8] = b"application/grpc";
const JSON: &[u8] = b"+json";
/// What precedes a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// How long a call may pause before it has ended its request. What sends no more by then is not
/// unary: a stream whose client waits for the first response.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Whether a request is a call of gRPC, by its method and its content type. gRPC-Web is something
/// else: it has its trailers in its body.
#[must_use]
pub fn is_grpc(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::POST && subtype(headers).is_some()
}

pub(crate) fn is_call(parts: &request::Parts) -> bool {
    is_grpc(&parts.method, &parts.headers)
}

/// What follows `application/grpc` in the content type.
fn subtype(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    let (own, rest) = value.split_at_checked(GRPC.len())?;
    let is_whole_name = matches!(rest.first(), None | Some(b'+' | b';' | b' '));
    (is_whole_name && own.eq_ignore_ascii_case(GRPC)).then_some(rest)
}

/// What of a call's body is compared by its fields, if anything is: the message, where it is JSON.
/// Everything else is compared byte by byte.
pub(crate) fn compared(headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    let subtype = subtype(headers)?;
    let is_json = subtype.get(..JSON.len()).is_some_and(|it| it.eq_ignore_ascii_case(JSON));
    // One that is compressed cannot be read.
    let is_readable = is_json && body.first() == Some(&0) && body.len() >= PREFIX_BYTES;
    is_readable.then(|| body.slice(PREFIX_BYTES..))
}

/// The body of a unary call: it fails as soon as it is clear that it is not one whole message.
pub(crate) struct UnaryBody<B> {
    body: Pin<Box<B>>,
    framing: Framing,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> UnaryBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body: Box::pin(body), framing: Framing::default(), pause: None }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for UnaryBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = loop {
            match this.body.as_mut().poll_frame(cx) {
                // It says nothing: a call with nothing else neither goes on nor ends.
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                frame => break frame,
            }
        };
        let Poll::Ready(frame) = frame else {
            let sleep = || Box::pin(sleep_until(Instant::now() + MAX_PAUSE));
            ready!(this.pause.get_or_insert_with(sleep).as_mut().poll(cx));
            let why: BoxError = match this.framing.is_whole() {
                true => NotUnary::Open.into(),
                false => "nothing of it came for too long".into(),
            };
            return Poll::Ready(Some(Err(why)));
        };
        this.pause = None;
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.data_ref().map(|data| this.framing.push(data)) {
                Some(Err(why)) => Some(Err(why.into())),
                _ => Some(Ok(frame)),
            },
            Some(Err(error)) => Some(Err(error.into())),
            None if this.framing.is_whole() => None,
            None => Some(Err(NotUnary::Cut.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        // The end is to be looked at.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where in its first message a body is.
#[derive(Debug, Default)]
struct Framing {
    prefix: [u8; PREFIX_BYTES],
    bytes: u64,
}

impl Framing {
    fn push(&mut self, data: &[u8]) -> Result<(), NotUnary> {
        let at = usize::try_from(self.bytes).unwrap_or(PREFIX_BYTES);
        let missing = self.prefix.iter_mut().skip(at);
        missing.zip(data).for_each(|(byte, new)| *byte = *new);
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        match self.length() {
            Some(length) if self.bytes > length => Err(NotUnary::Several),
            _ => Ok(()),
        }
    }

    /// The length of the message with its prefix, once that is known.
    fn length(&self) -> Option<u64> {
        let [_, length @ ..] = self.prefix;
        let length = u64::from(u32::from_be_bytes(length)) + PREFIX_BYTES as u64;
        (self.bytes >= PREFIX_BYTES as u64).then_some(length)
    }

    fn is_whole(&self) -> bool {
        self.length() == Some(self.bytes)
    }
}

/// Why a body is not that of a unary call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotUnary {
    /// There is more than one message.
    Several,
    /// There is one message, and the request does not end.
    Open,
    /// There is no message, or it is not whole.
    Cut,
}

impl fmt::Display for NotUnary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Several => {
                "The call sends more than one message, and only calls with one can have a key. \
                 Nothing was executed. Call methods that stream without a key."
            }
            Self::Open => {
                "The call does not end its request after one message, and only calls that do can \
                 have a key. Nothing was executed. Call methods that stream without a key."
            }
            Self::Cut => "The call has no whole message. Nothing was executed.",
        })
    }
}

impl std::error::Error for NotUnary {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&[0][..], &length, data].concat()
    }

    fn pushed(parts: &[&[u8]]) -> Result<bool, NotUnary> {
        let mut framing = Framing::default();
        parts.iter().try_for_each(|part| framing.push(part))?;
        Ok(framing.is_whole())
    }

    proptest! {
        #[test]
        fn a_message_is_whole_however_it_is_cut(
            data in proptest::collection::vec(any::<u8>(), 0..40),
            cuts in proptest::collection::vec(0..46_usize, 0..5),
        ) {
            let whole = message(&data);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|two| &whole[two[0]..two[1]]).collect();
            prop_assert_eq!(pushed(&parts), Ok(true));
            prop_assert_eq!(pushed(&[&whole[..whole.len() - 1]]), Ok(false));
            prop_assert_eq!(pushed(&[&whole, &[0]]), Err(NotUnary::Several));
        }
    }

    #[test]
    fn calls_are_known_by_their_content_type() {
        let of = |method: &str, value: &str| {
            let request = http::Request::builder().method(method).header(CONTENT_TYPE, value);
            is_call(&request.body(()).unwrap().into_parts().0)
        };
        for is in ["application/grpc", "application/grpc+proto", "Application/gRPC;a=b"] {
            assert!(of("POST", is), "{is}");
            assert!(!of("GET", is), "{is}");
        }
        for other in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""]
        {
            assert!(!of("POST", other), "{other}");
        }
    }

    #[test]
    fn only_json_that_is_not_compressed_is_compared_by_its_fields() {
        let body = Bytes::from(message(b"{}"));
        let compressed = Bytes::from([&[1][..], &body[1..]].concat());
        let of = |value: &'static str, body: &Bytes| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            compared(&headers, body)
        };
        assert_eq!(of("application/grpc+json", &body).unwrap(), "{}");
        assert_eq!(of("application/grpc+json", &compressed), None);
        assert_eq!(of("application/grpc+proto", &body), None);
        assert_eq!(of("application/grpc", &body), None);
        assert_eq!(of("application/grpc+json", &Bytes::from_static(b"\0\0")), None);
    }
}
