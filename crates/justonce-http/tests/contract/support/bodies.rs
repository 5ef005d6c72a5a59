//! Bodies in all the ways in which they can come.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    Error,
}

/// Where a test puts the pieces of a body; the body ends when it is dropped.
pub(crate) type Feed = mpsc::UnboundedSender<Piece>;

/// A body that a test feeds piece by piece.
pub(crate) fn fed(exact: Option<u64>) -> (Feed, Body) {
    let (feed, pieces) = mpsc::unbounded_channel();
    (feed, Body::new(Fed { pieces, exact }))
}

/// A body of these pieces, all there at once.
pub(crate) fn of(pieces: impl IntoIterator<Item = Piece>, exact: Option<u64>) -> Body {
    let (feed, body) = fed(exact);
    for piece in pieces {
        // The receiver is in the body.
        let _ = feed.send(piece);
    }
    body
}

pub(crate) fn data(bytes: impl Into<Bytes>) -> Piece {
    Piece::Data(bytes.into())
}

struct Fed {
    pieces: mpsc::UnboundedReceiver<Piece>,
    exact: Option<u64>,
}

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.pieces.poll_recv(cx).map(|piece| {
            piece.map(|piece| match piece {
                Piece::Data(data) => Ok(Frame::data(data)),
                Piece::Trailers(trailers) => Ok(Frame::trailers(trailers)),
                Piece::Error => Err(std::io::Error::other("broken off")),
            })
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.exact.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
