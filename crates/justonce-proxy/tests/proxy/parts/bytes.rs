//! Clients that speak in bytes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) fn content_length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map_or(0, |value| value.parse().unwrap())
}

/// A head in small letters, and what was read of the body; nothing at the end.
pub(crate) async fn read_head<T: AsyncRead + Unpin>(stream: &mut T) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Some((String::from_utf8(bytes).unwrap().to_ascii_lowercase(), rest));
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Reads one answer with a length: its head and its body.
pub(crate) async fn read_answer<T: AsyncRead + Unpin>(stream: &mut T) -> (String, String) {
    let (head, mut body) = read_head(stream).await.expect("an answer");
    let length = content_length(&head);
    while body.len() < length {
        assert_ne!(stream.read_buf(&mut body).await.unwrap(), 0, "cut off: {head}");
    }
    (head, String::from_utf8(body).unwrap())
}

/// Everything until the other side closes; a reset is a close too.
pub(crate) async fn read_rest<T: AsyncRead + Unpin>(stream: &mut T) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends bytes and reads all that comes back until the connection is closed.
pub(crate) async fn shout(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    read_rest(&mut stream).await
}

pub(crate) async fn say<T: AsyncWrite + Unpin>(stream: &mut T, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Lets the runtime hear of everything that has happened on sockets so far.
pub(crate) async fn settle() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..3 {
        let (here, there) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut here, (mut there, _)) = (here.unwrap(), there.unwrap());
        say(&mut here, "x").await;
        there.read_u8().await.unwrap();
    }
}

/// A body that somebody else feeds.
pub(crate) struct Fed(mpsc::Receiver<io::Result<Bytes>>);

impl Fed {
    pub(crate) fn new() -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Self(receiver))
    }
}

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|fed| fed.map(|fed| fed.map(Frame::data)))
    }
}
