//! The result that is stored and replayed.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// The longest body that is stored with an outcome, in bytes. Of a longer one only the size is
/// kept, as [`Body::TooLarge`]: entry points deliver it to the first caller by themselves.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// The most headers one outcome may have.
pub const MAX_HEADERS: usize = 256;
/// The most bytes all names and values of an outcome's headers may have together.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The result that is stored and replayed: a body of any bytes and, where the entry point has them,
/// a status and headers. Cheap to clone.
///
/// ```
/// use justonce_core::Outcome;
///
/// // The default: any bytes.
/// let plain = Outcome::bytes("receipt 17");
/// assert_eq!(plain.body(), Some(&b"receipt 17"[..]));
///
/// // Customised: an HTTP reply.
/// let reply = Outcome::builder().status(201).header("location", "/payments/17")
///     .body("{}").build()?;
/// assert_eq!(reply.status(), Some(201));
/// # Ok::<(), justonce_core::OutcomeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome(Arc<Parts>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Parts {
    status: Option<u16>,
    headers: Vec<Header>,
    body: Body,
}

/// One header of an [`Outcome`], in the order in which it was sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// The name.
    pub name: Box<str>,
    /// The value.
    pub value: Bytes,
}

/// The body of an [`Outcome`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// The bytes, whole.
    Whole(Bytes),
    /// There was a body of this many bytes, too large to store. It is never truncated.
    TooLarge(u64),
}

impl Outcome {
    /// An outcome without status and headers. A body over [`MAX_BODY_BYTES`] is not stored: see
    /// [`Body::TooLarge`].
    #[must_use]
    pub fn bytes(body: impl Into<Bytes>) -> Self {
        let body = Body::of(body.into());
        Self(Arc::new(Parts { status: None, headers: Vec::new(), body }))
    }

    /// The outcome of an operation that has nothing to say but that it is done.
    #[must_use]
    pub fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    /// Starts an outcome with status and headers.
    pub fn builder() -> OutcomeBuilder {
        OutcomeBuilder {
            parts: Parts { status: None, headers: Vec::new(), body: Body::Whole(Bytes::new()) },
        }
    }

    /// The status, if the entry point has one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The headers, in order, with repeats.
    #[must_use]
    pub fn headers(&self) -> &[Header] {
        &self.0.headers
    }

    /// The body, unless it was too large to store.
    #[must_use]
    pub fn body(&self) -> Option<&[u8]> {
        match &self.0.body {
            Body::Whole(bytes) => Some(bytes),
            Body::TooLarge(_) => None,
        }
    }

    /// The body with what is known of it if it was too large.
    #[must_use]
    pub fn stored_body(&self) -> &Body {
        &self.0.body
    }
}

impl fmt::Debug for Outcome {
    /// Shows sizes, not contents: outcomes hold personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = match &self.0.body {
            Body::Whole(bytes) => bytes.len() as u64,
            Body::TooLarge(size) => *size,
        };
        f.debug_struct("Outcome")
            .field("status", &self.0.status)
            .field("headers", &self.0.headers.len())
            .field("body_bytes", &size)
            .finish()
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", self.name, self.value.len())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::TooLarge(size) => write!(f, "TooLarge({size} bytes)"),
        }
    }
}

impl Body {
    /// A body as it is stored: whole, or not at all.
    #[must_use]
    pub fn of(bytes: Bytes) -> Self {
        if bytes.len() > MAX_BODY_BYTES {
            Self::TooLarge(bytes.len() as u64)
        } else {
            Self::Whole(bytes)
        }
    }
}

/// Collects the parts of an [`Outcome`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct OutcomeBuilder {
    parts: Parts,
}

impl OutcomeBuilder {
    /// The status.
    pub fn status(mut self, status: u16) -> Self {
        self.parts.status = Some(status);
        self
    }

    /// Reserves memory for this many headers, and no more: outcomes are kept for long.
    pub fn reserve_headers(mut self, count: usize) -> Self {
        self.parts.headers.reserve_exact(count);
        self
    }

    /// One more header; a name may be repeated.
    pub fn header(mut self, name: impl Into<Box<str>>, value: impl Into<Bytes>) -> Self {
        self.parts.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.parts.body = Body::of(body.into());
        self
    }

    /// A body of which only the size is kept.
    pub fn too_large(mut self, size: u64) -> Self {
        self.parts.body = Body::TooLarge(size);
        self
    }

    /// Finishes the outcome.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_HEADERS`] headers or [`MAX_HEADER_BYTES`] bytes in them.
    pub fn build(self) -> Result<Outcome, OutcomeError> {
        let headers = &self.parts.headers;
        let bytes: usize = headers.iter().map(|h| h.name.len() + h.value.len()).sum();
        if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
            return Err(OutcomeError { headers: headers.len(), bytes });
        }
        Ok(Outcome(Arc::new(self.parts)))
    }
}

impl fmt::Debug for OutcomeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeBuilder").field("headers", &self.parts.headers.len()).finish()
    }
}

/// An outcome has more headers than can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the outcome has {headers} headers with {bytes} bytes, at most {MAX_HEADERS} with \
     {MAX_HEADER_BYTES} bytes can be stored"
)]
pub struct OutcomeError {
    /// How many headers it has.
    pub headers: usize,
    /// How many bytes are in them.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_body_is_never_truncated() {
        let fits = Outcome::bytes(vec![7; MAX_BODY_BYTES]);
        assert_eq!(fits.body().map(<[u8]>::len), Some(MAX_BODY_BYTES));
        let large = Outcome::bytes(vec![7; MAX_BODY_BYTES + 1]);
        assert_eq!(large.body(), None);
        assert_eq!(large.stored_body(), &Body::TooLarge(MAX_BODY_BYTES as u64 + 1));
    }

    #[test]
    fn headers_are_bounded_and_keep_their_order() {
        let build = |count: usize| {
            let start = Outcome::builder().status(200);
            (0..count).fold(start, |b, n| b.header("x-n", n.to_string())).build()
        };
        let kept = build(3).unwrap();
        let values: Vec<_> = kept.headers().iter().map(|h| h.value.clone()).collect();
        assert_eq!(values, ["0", "1", "2"]);
        assert_eq!(build(MAX_HEADERS + 1).unwrap_err().headers, MAX_HEADERS + 1);
    }

    #[test]
    fn debug_shows_no_contents() {
        let shown = format!("{:?}", Outcome::bytes("card 4242"));
        assert!(!shown.contains("4242"), "{shown}");
    }
}
