//! The bytes of a client's connection, watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::early::Early;
use super::gauge::Gauge;
use super::shutdown::Permit;
use super::watch::Watch;

/// A client's connection. It counts as open until it is dropped, also when it has switched to
/// another protocol.
pub(super) struct Wire<T> {
    stream: T,
    // What was read before it was known which protocol this is.
    first: Vec<u8>,
    watch: Watch,
    gauge: Arc<Gauge>,
    early: Arc<Early>,
    // Whether everything that was written before has left: the next byte begins something new.
    between: bool,
    _permit: Permit,
}

impl<T> Wire<T> {
    pub(super) fn new(
        stream: T,
        first: Vec<u8>,
        watch: Watch,
        gauge: Arc<Gauge>,
        early: Arc<Early>,
        permit: Permit,
    ) -> Self {
        Self { stream, first, watch, gauge, early, between: true, _permit: permit }
    }
}

impl<T: AsyncWrite + Unpin> Wire<T> {
    /// Writes what goes in front of an answer, if nothing before it is half written.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, early, between, .. } = self;
        let written = early
            .poll_write(*between, cx, |bytes, cx| Pin::new(&mut *stream).poll_write(cx, bytes));
        if written.is_pending() {
            self.gauge.wrote(None);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if this.first.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let count = this.first.len().min(buffer.remaining());
            let rest = this.first.split_off(count);
            buffer.put_slice(&std::mem::replace(&mut this.first, rest));
        }
        let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        this.watch.follow(read);
        this.gauge.set_in_head(this.watch.is_in_head());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_early(cx))?;
        self.between = false;
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.gauge.wrote(taken(&wrote));
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_early(cx))?;
        self.between = false;
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.gauge.wrote(taken(&wrote));
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The server flushes when it has written everything it has.
        self.between = true;
        if self.early.is_open(cx) {
            ready!(self.poll_early(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How much the line took; nothing if it could take none.
fn taken(wrote: &Poll<io::Result<usize>>) -> Option<usize> {
    match wrote {
        Poll::Pending => None,
        Poll::Ready(wrote) => Some(*wrote.as_ref().unwrap_or(&0)),
    }
}
