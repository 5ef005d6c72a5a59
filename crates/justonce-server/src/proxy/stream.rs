//! The bytes below HTTP.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A socket, in clear or through TLS.
#[derive(Debug)]
pub(super) struct Stream {
    kind: Kind,
    watch: Arc<Watch>,
}

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What the holder of a connection asks its stream, which lies inside the HTTP machinery.
#[derive(Debug, Default)]
pub(super) struct Watch {
    // The next read must look at the socket itself.
    look: AtomicBool,
    // Whether anything of the exchange under way was taken by the socket.
    wrote: AtomicBool,
}

impl Watch {
    /// An exchange begins. On a connection that was used before, the first read asks the kernel
    /// whether the upstream has closed it: the runtime may not have heard of that yet.
    pub(super) fn begin(&self, was_used: bool) {
        self.look.store(was_used, Ordering::Relaxed);
        self.wrote.store(false, Ordering::Relaxed);
    }

    /// Whether anything of the exchange under way may have left this process.
    pub(super) fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }
}

impl Stream {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self { kind: Kind::Plain(stream), watch: Arc::default() }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { kind: Kind::Tls(Box::new(stream)), watch: Arc::default() }
    }

    pub(super) fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }

    fn noted<T>(&self, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(wrote, Poll::Ready(Ok(_))) {
            self.watch.wrote.store(true, Ordering::Relaxed);
        }
        wrote
    }

    /// What the kernel has for a connection on which nothing was asked: nothing, if all is well.
    fn look(&self) -> io::Result<Idle> {
        let socket = match &self.kind {
            Kind::Plain(stream) => stream,
            Kind::Tls(stream) => stream.get_ref().0,
        };
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(socket).peek(&mut byte) {
            Ok(0) => Ok(Idle::Closed),
            // Words that nobody asked for, or the end of a TLS session: the last words of a
            // server that is about to close.
            Ok(_) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "an unasked answer")),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(Idle::Open),
            Err(why) => Err(why),
        }
    }
}

enum Idle {
    Open,
    Closed,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.watch.look.swap(false, Ordering::Relaxed) && matches!(self.look()?, Idle::Closed) {
            // Nothing was read: that is the end.
            return Poll::Ready(Ok(()));
        }
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        };
        self.noted(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Kind::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        };
        self.noted(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Plain(stream) => stream.is_write_vectored(),
            Kind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
