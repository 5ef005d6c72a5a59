//! A small client of the admin API.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::options::AdminOptions;
use crate::admin::wire::ProblemBody;
use crate::config::{AdminToken, Secret};

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer: a page of long keys, or one outcome.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// A gateway's admin API.
pub(crate) struct Client {
    authority: String,
    token: Option<Secret>,
}

/// An answer of the admin API.
pub(crate) enum Answered {
    /// It was done; this is what it said.
    Done(Bytes),
    /// It was refused.
    Refused(StatusCode, ProblemBody),
}

impl Client {
    /// The one that the options name.
    pub(crate) fn new(options: &AdminOptions) -> anyhow::Result<Self> {
        let token = match (&options.token, &options.token_file) {
            (Some(token), _) => Some(Secret::new(token.trim())),
            (None, Some(file)) => Some(
                AdminToken::File(file.clone())
                    .read()
                    .with_context(|| format!("cannot read the token in {}", file.display()))?,
            ),
            (None, None) => None,
        };
        Ok(Self { authority: authority(&options.admin)?, token })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answered> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Answered> {
        self.send(Method::POST, path, body.into()).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Answered> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let request = request.body(Full::new(body)).context("the request cannot be made")?;
        let exchanged = tokio::time::timeout(PATIENCE, self.exchange(request)).await;
        let (status, body) = exchanged
            .with_context(|| format!("{} did not answer in time", self.authority))?
            .with_context(|| {
                format!(
                    "cannot reach the gateway's admin API at {}: is `justonce serve` running \
                     there? Another address is given with --admin",
                    self.authority
                )
            })?;
        judge(status, body)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        driver.abort();
        Ok((status, body.to_bytes()))
    }
}

/// Done, refused, or something that is no answer of an admin API.
fn judge(status: StatusCode, body: Bytes) -> anyhow::Result<Answered> {
    if status.is_success() {
        return Ok(Answered::Done(body));
    }
    if status == StatusCode::UNAUTHORIZED {
        bail!("the gateway wants its admin token: use JUSTONCE_ADMIN_TOKEN or --token-file");
    }
    match serde_json::from_slice::<ProblemBody>(&body) {
        Ok(problem) => Ok(Answered::Refused(status, problem)),
        Err(_) => bail!("{status}: {}", String::from_utf8_lossy(&body).trim()),
    }
}

/// Reads an answer.
pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("this is no answer of a gateway's admin API")
}

/// `host:port` of an address with or without its scheme. It is what `admin` means to a gateway: one
/// that listens on all addresses of a machine is reached by the machine itself.
fn authority(admin: &str) -> anyhow::Result<String> {
    if admin == "off" {
        bail!("the admin API is off: give its address with --admin");
    }
    if admin.starts_with("https://") {
        bail!("the admin API speaks no TLS: use http://, or a tunnel");
    }
    let bare = admin.strip_prefix("http://").unwrap_or(admin).trim_end_matches('/');
    let uri: Uri = bare.parse().with_context(|| format!("{admin:?} is no address"))?;
    let authority = uri.authority().filter(|_| uri.path() == "/" || uri.path().is_empty());
    match authority {
        Some(authority) if authority.port().is_some() => {
            Ok(match authority.as_str().parse::<SocketAddr>() {
                Ok(SocketAddr::V4(all)) if all.ip().is_unspecified() => {
                    SocketAddr::from((Ipv4Addr::LOCALHOST, all.port())).to_string()
                }
                Ok(SocketAddr::V6(all)) if all.ip().is_unspecified() => {
                    SocketAddr::from((Ipv6Addr::LOCALHOST, all.port())).to_string()
                }
                _ => authority.to_string(),
            })
        }
        Some(authority) => Ok(format!("{authority}:80")),
        None => bail!("{admin:?} is no address, as in http://127.0.0.1:8081"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_their_scheme() {
        assert_eq!(authority("http://127.0.0.1:8081").unwrap(), "127.0.0.1:8081");
        assert_eq!(authority("http://127.0.0.1:8081/").unwrap(), "127.0.0.1:8081");
        assert_eq!(authority("10.0.0.5:8081").unwrap(), "10.0.0.5:8081");
        assert_eq!(authority("[::1]:8081").unwrap(), "[::1]:8081");
        assert_eq!(authority("http://gateway").unwrap(), "gateway:80");
        assert_eq!(authority("0.0.0.0:8081").unwrap(), "127.0.0.1:8081");
        assert_eq!(authority("http://[::]:8081").unwrap(), "[::1]:8081");
        for wrong in ["", "off", "https://a:1", "http://a:1/keys", "a b"] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }
}
