//! `POST /store/backup`: a backup of the embedded store, as a stream to whoever asks for it.
//! Nothing is written on this machine.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use justonce::embedded::backup::Backup;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::problem::Refusal;
use super::server::AdminState;

/// How many parts wait for the client: it bounds the memory that a slow one takes.
const PARTS: usize = 4;
/// How long a client may take nothing.
const STALLED: Duration = Duration::from_secs(60);
/// Small parts are gathered up to this.
const PART_BYTES: usize = 64 * 1024;

/// Begins a backup, and sends it.
pub(super) async fn backup(State(admin): State<Arc<AdminState>>) -> Result<Response, Refusal> {
    let store = admin.store.as_ref().ok_or_else(|| Refusal::invalid(NOT_EMBEDDED))?;
    let backups = store.backups().ok_or_else(|| Refusal::invalid(AWAY))?;
    let backup = backups.begin().await?;
    let (sender, parts) = channel(PARTS);
    tokio::task::spawn_blocking(move || send(backup, &sender));
    let kind = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::new(Parts(parts))).into_response())
}

fn send(backup: Backup, to: &Sender<io::Result<Bytes>>) {
    let mut out = BufWriter::with_capacity(PART_BYTES, Outgoing(to.clone()));
    let sent = backup.write_to(&mut out, &mut |_| {});
    match sent {
        Ok(report) => {
            let (files, bytes) = (report.files, report.bytes);
            tracing::info!(target: "justonce::store", files, bytes, "a backup was made");
            for file in report.damaged {
                tracing::error!(target: "justonce::store", file, "a file of the store is damaged");
            }
        }
        Err(error) => {
            tracing::warn!(target: "justonce::store", %error, "a backup was not finished");
            // The connection breaks off, and the client knows that it is not whole.
            let _ = to.try_send(Err(io::Error::other("the backup was not finished")));
        }
    }
}

/// Where the backup is written to: the client, through the channel.
struct Outgoing(Sender<io::Result<Bytes>>);

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(Ok(Bytes::copy_from_slice(bytes)));
        // A client that stands still must not keep links to files for ever.
        let sent = Handle::current().block_on(async { timeout(STALLED, sent).await });
        match sent {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::Error::new(ErrorKind::BrokenPipe, "the client is gone")),
            Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "the client takes nothing")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body of the response.
struct Parts(Receiver<io::Result<Bytes>>);

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
    }
}

const AWAY: &str = "Another process takes the store over at this moment. Try again.";
const NOT_EMBEDDED: &str = "Only the embedded store (`file:`) is backed up by the gateway. Redis \
                            and PostgreSQL are backed up by their own means; docs/operating.md \
                            says what to look for.";
