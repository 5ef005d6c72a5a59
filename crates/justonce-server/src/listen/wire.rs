//! The bytes of a client's connection, watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    _permit: Permit,
}

impl<T> Wire<T> {
    pub(super) fn new(
        stream: T,
        first: Vec<u8>,
        watch: Watch,
        gauge: Arc<Gauge>,
        permit: Permit,
    ) -> Self {
        Self { stream, first, watch, gauge, _permit: permit }
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
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.gauge.wrote(wrote.is_ready());
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.gauge.wrote(wrote.is_ready());
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
