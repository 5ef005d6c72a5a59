//! An HTTP/2 server that writes the frames that it is told to.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u8 = 3;

/// A frame as it came.
struct Frame {
    kind: u8,
    stream: u32,
}

/// The server's side of a connection.
pub(crate) struct Frames {
    socket: TcpStream,
    read: BytesMut,
}

impl Frames {
    /// After the client's preface; nothing is written yet.
    pub(crate) async fn accept(mut socket: TcpStream) -> Self {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        Self { socket, read: BytesMut::new() }
    }

    /// The next frame; nothing at the end. Dropped before, it loses nothing.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.read.first_chunk::<9>() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
                let frame = Frame { kind: head[3], stream };
                if self.read.len() >= 9 + length {
                    self.read.advance(9 + length);
                    return Some(frame);
                }
            }
            if self.socket.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The stream of the next request; nothing at the end.
    pub(crate) async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.socket.write_all(&frame).await.unwrap();
    }

    /// Settings that say nothing.
    pub(crate) async fn settings(&mut self) {
        self.write(SETTINGS, 0, 0, &[]).await;
    }

    /// How many requests are allowed at once.
    pub(crate) async fn allow(&mut self, requests: u8) {
        let payload = [0, MAX_CONCURRENT_STREAMS, 0, 0, 0, requests];
        self.write(SETTINGS, 0, 0, &payload).await;
    }

    /// A whole response with the status 200.
    pub(crate) async fn ok(&mut self, stream: u32) {
        // The status is an entry of the static table.
        self.write(HEADERS, END_HEADERS, stream, &[0x88]).await;
        self.write(DATA, END_STREAM, stream, b"ok").await;
    }

    /// Nothing after this stream was looked at, and there is no error.
    pub(crate) async fn go_away(&mut self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        self.write(GOAWAY, 0, 0, &payload).await;
    }

    /// Ends the connection in order.
    pub(crate) async fn end(mut self) {
        self.socket.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = self.socket.read_to_end(&mut rest).await;
    }
}
