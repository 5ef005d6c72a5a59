//! The bytes of a client connection, checked and counted on their way.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use super::framing::FramingCheck;
use super::tracker::ConnectionGuard;
use crate::informational::InformationalQueue;

/// The end of a head for a parser that accepts bare line feeds.
const HEAD_END: &[u8] = b"\n\n";

/// A client connection. It counts as open until it is dropped, also after an upgrade to another
/// protocol.
pub(super) struct ClientIo<T> {
    stream: T,
    // What was read before the protocol was known.
    first: Vec<u8>,
    framing: FramingCheck,
    // Whether the parser has to be shown the end of a head that is refused.
    ends_head: bool,
    activity: Arc<Activity>,
    informational: Arc<InformationalQueue>,
    // Whether everything written before is complete: the next byte begins a new response.
    between: bool,
    _guard: ConnectionGuard,
}

impl<T> ClientIo<T> {
    pub(super) fn new(
        stream: T,
        first: Vec<u8>,
        framing: FramingCheck,
        activity: Arc<Activity>,
        informational: Arc<InformationalQueue>,
        guard: ConnectionGuard,
    ) -> Self {
        let (ends_head, between) = (false, true);
        Self { stream, first, framing, ends_head, activity, informational, between, _guard: guard }
    }
}

impl<T: AsyncWrite + Unpin> ClientIo<T> {
    /// Writes informational responses, if everything written before is complete.
    fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, informational, between, .. } = self;
        let written = informational
            .poll_write(*between, cx, |bytes, cx| Pin::new(&mut *stream).poll_write(cx, bytes));
        if written.is_pending() {
            self.activity.wrote(None);
        }
        written
    }

    fn poll_counted(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_informational(cx))?;
        self.between = false;
        let wrote = write(Pin::new(&mut self.stream), cx);
        self.activity.wrote(match &wrote {
            Poll::Pending => None,
            Poll::Ready(wrote) => Some(*wrote.as_ref().unwrap_or(&0)),
        });
        wrote
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ClientIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ends_head && buffer.remaining() >= HEAD_END.len() {
            this.ends_head = false;
            buffer.put_slice(HEAD_END);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if this.first.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let count = this.first.len().min(buffer.remaining());
            let rest = this.first.split_off(count);
            buffer.put_slice(&std::mem::replace(&mut this.first, rest));
        }
        let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        // The parser looks at a head once it has come to its end, which this one may never do.
        this.ends_head |= this.framing.check(read);
        this.activity.set_in_head(this.framing.is_in_head(), this.framing.heads());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_counted(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_counted(cx, |stream, cx| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The HTTP server flushes when it has written everything it has.
        self.between = true;
        if self.informational.is_open(cx) {
            ready!(self.poll_informational(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
