//! Backups, as the client receives them.

use std::fmt::Display;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::task::AbortHandle;

use crate::client::{Client, ClientError, MAX_RESPONSE_BYTES, TIMEOUT, refused, unexpected};

/// A backup of the gateway's store, on its way: a stream that `justonce_embedded::backup::Unpacker`
/// makes a directory of.
#[derive(Debug)]
pub struct BackupStream {
    body: Incoming,
    authority: String,
    connection: AbortHandle,
}

impl Client {
    /// Begins a backup of the gateway's embedded store: what is acknowledged now will be in it.
    pub async fn backup(&self) -> Result<BackupStream, ClientError> {
        let request = self.request(Method::POST, "/store/backup", Bytes::from_static(b"{}"))?;
        let (response, connection) = self.in_time(self.connect_and_send(request)).await?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let body = self.in_time(Limited::new(body, MAX_RESPONSE_BYTES).collect()).await?;
            let body = body.to_bytes();
            connection.abort();
            return Err(refused(head.status, &body));
        }
        Ok(BackupStream { body, authority: self.authority().to_owned(), connection })
    }
}

impl BackupStream {
    /// The next part; nothing at the end. That it is whole, the receiver finds out.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or nothing comes for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await;
            let frame = frame.map_err(|_| ClientError::TimedOut(self.authority.clone()))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(unexpected_end)?;
            // Trailers are passed over.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

impl Drop for BackupStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn unexpected_end(error: impl Display) -> ClientError {
    unexpected(format_args!("the backup broke off: {error}; the gateway's log says why"))
}
