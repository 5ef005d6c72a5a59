//! Reads a document with keys, from a file or over HTTP.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use justonce_net::TrustRoots;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::key_set::MAX_DOCUMENT_BYTES;
use crate::settings::{KeySource, KeyUrl};

/// How long a fetch may take as a whole: requests may wait for it.
pub(crate) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;

/// Reads the document; if that fails, the reason for the log.
pub(crate) async fn fetch(source: &KeySource) -> Result<Vec<u8>, String> {
    let reading = async {
        match source {
            KeySource::File(path) => {
                let path = path.clone();
                spawn_blocking(move || read(&path)).await?
            }
            KeySource::Url(url) => get(url).await,
        }
    };
    match timeout(FETCH_TIMEOUT, reading).await {
        Ok(read) => read.map_err(|error| with_causes(&*error)),
        Err(_) => Err(format!("it did not come within {} s", FETCH_TIMEOUT.as_secs())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BoxError> {
    // What is no file may never end.
    if !std::fs::metadata(path)?.is_file() {
        return Err("it is no file".into());
    }
    let mut document = Vec::new();
    // One byte more shows that it is too long.
    File::open(path)?.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut document)?;
    Ok(document)
}

async fn get(url: &KeyUrl) -> Result<Vec<u8>, BoxError> {
    let authority = url.uri.authority().ok_or("it has no host")?;
    let host = authority.host().trim_matches(['[', ']']);
    let is_tls = url.uri.scheme_str() == Some("https");
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    if !is_tls {
        return exchange(stream, &url.uri).await;
    }
    let ca = url.ca.clone();
    // Read each time: both may have changed.
    let roots = spawn_blocking(move || roots(ca)).await??;
    let config = roots.client_config(b"http/1.1")?;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    exchange(stream, &url.uri).await
}

fn roots(ca: Option<PathBuf>) -> Result<TrustRoots, BoxError> {
    match ca {
        None => Ok(TrustRoots::system()),
        Some(path) => {
            let read = TrustRoots::from_file(&path);
            read.map_err(|why| format!("{}: {why}", path.display()).into())
        }
    }
}

async fn exchange<S>(stream: S, uri: &Uri) -> Result<Vec<u8>, BoxError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // It ends with this function.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(USER_AGENT, "justonce")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        let more =
            if response.status().is_redirection() { "; redirects are not followed" } else { "" };
        return Err(format!("the answer was {}{more}", response.status()).into());
    }
    let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES).collect().await;
    match body {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(format!("the answer has more than {MAX_DOCUMENT_BYTES} bytes").into())
        }
        Err(error) => Err(error),
    }
}

/// An error and what it was caused by, on one line.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
