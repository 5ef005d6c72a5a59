//! The socket of an upstream connection: TCP, in clear or with TLS, or a Unix socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// A socket, in clear or with TLS.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    state: Arc<StreamState>,
}

/// Boxed: a TLS session is large.
type Socket = Either<Either<TcpStream, UnixStream>, Box<TlsStream<TcpStream>>>;

/// Shared with the owner of a connection, whose stream is inside the HTTP client.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    // The next read must check the socket itself.
    check: AtomicBool,
    // Whether the socket took anything of the exchange under way.
    wrote: AtomicBool,
    // Whether anything was ever read: a TLS handshake has ended on both sides then.
    read: AtomicBool,
}

impl StreamState {
    /// An exchange begins. On a connection that was used before, the first read asks the kernel
    /// whether the upstream has closed it: the runtime may not know yet.
    pub(super) fn begin(&self, was_used: bool) {
        self.check.store(was_used, Ordering::Relaxed);
        self.wrote.store(false, Ordering::Relaxed);
    }

    /// Whether anything of the exchange under way may have left this process.
    pub(super) fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    /// Whether anything was ever read.
    pub(super) fn read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }
}

impl Stream {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self { socket: Either::Left(Either::Left(stream)), state: Arc::default() }
    }

    pub(super) fn unix(stream: UnixStream) -> Self {
        Self { socket: Either::Left(Either::Right(stream)), state: Arc::default() }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { socket: Either::Right(Box::new(stream)), state: Arc::default() }
    }

    pub(super) fn state(&self) -> Arc<StreamState> {
        Arc::clone(&self.state)
    }

    /// A second handle to the socket, which whoever does not own the stream can ask about its end.
    pub(super) fn probe(&self) -> io::Result<SocketProbe> {
        Ok(SocketProbe(self.fd().try_clone_to_owned()?.into()))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Either::Left(Either::Left(stream)) => stream.as_fd(),
            Either::Left(Either::Right(stream)) => stream.as_fd(),
            Either::Right(stream) => stream.get_ref().0.as_fd(),
        }
    }

    fn recorded<T>(&self, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(wrote, Poll::Ready(Ok(_))) {
            self.state.wrote.store(true, Ordering::Relaxed);
        }
        wrote
    }

    /// Whether the kernel has the end of an idle connection. Nothing else should have arrived.
    fn is_closed(&self) -> io::Result<bool> {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&self.fd()).peek(&mut byte) {
            Ok(0) => Ok(true),
            // A response without a request, or the end of a TLS session: the server is closing.
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "a response without a request",
            )),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }
}

/// A socket that somebody else reads and writes.
#[derive(Debug)]
pub(super) struct SocketProbe(socket2::Socket);

impl SocketProbe {
    /// Whether the kernel has its end, and nothing before that is left to be read. The runtime may
    /// not know yet.
    pub(super) fn has_ended(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match self.0.peek(&mut byte) {
            Ok(read) => read == 0,
            Err(why) => why.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.check.swap(false, Ordering::Relaxed) && self.is_closed()? {
            // Reading nothing means the end.
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.state.read.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.recorded(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.recorded(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
