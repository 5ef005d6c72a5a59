//! A client of the admin API.

use std::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::{
    KeyDetail, KeyFilter, KeyPage, Problem, Readiness, Removal, RemoveRequest, RemoveResponse,
    Resolution, ResolveRequest, ResolveResponse, RetryRequest, RetryResponse, SagaDetail,
    SagaFilter, SagaPage, ShowQuery,
};

/// How long a request may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response: a page of long keys, or one outcome.
pub(crate) const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// The hexadecimal digits of a whole record id.
const ID_DIGITS: usize = 64;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A client of one gateway's admin API. Each request has a connection of its own, and fails if the
/// gateway cannot be reached or refuses.
pub struct Client {
    authority: String,
    token: Option<String>,
}

/// A response: its value, and the JSON it was read from.
#[derive(Clone, Debug)]
pub struct ApiResponse<T> {
    /// The value.
    pub value: T,
    /// The JSON, with fields that a newer gateway may have added.
    pub json: Bytes,
}

/// A response, or why there is none.
pub type ApiResult<T> = Result<ApiResponse<T>, ClientError>;

/// Why there is no response, or not the one that was wanted.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The address cannot be used.
    Address(String),
    /// There is no connection to this address, or it broke.
    Unreachable(String, BoxError),
    /// There was no response from this address in time.
    TimedOut(String),
    /// The gateway requires its admin token.
    Unauthorized,
    /// The gateway refused the request.
    Refused(StatusCode, Problem),
    /// The response is not one of an admin API.
    Unexpected(String),
}

impl Client {
    /// A client of the admin API at this address: `host:port`, with or without `http://`. An
    /// address that stands for all addresses of a machine leads to the machine itself.
    ///
    /// # Errors
    ///
    /// If it is not an address.
    ///
    /// ```
    /// use justonce_admin_api::Client;
    ///
    /// let local = Client::new("http://127.0.0.1:8081")?;
    /// let with_token = Client::new("10.0.0.5:8081")?.token("the admin token");
    /// # Ok::<(), justonce_admin_api::ClientError>(())
    /// ```
    pub fn new(address: &str) -> Result<Self, ClientError> {
        Ok(Self { authority: authority(address)?, token: None })
    }

    /// Sends the admin token with each request.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Whether the gateway can take requests.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        let (status, body) = self.send(Method::GET, "/readyz", Bytes::new()).await?;
        let detail = String::from_utf8_lossy(&body).trim().to_owned();
        Ok(Readiness { is_ready: status.is_success(), detail })
    }

    /// A page of records.
    pub async fn keys(&self, filter: &KeyFilter) -> ApiResult<KeyPage> {
        self.get("/keys", filter).await
    }

    /// A record, by its id or at least the first 8 digits of it.
    pub async fn key(&self, id: &str, contents: bool) -> ApiResult<KeyDetail> {
        self.get(&format!("/keys/{}", segment(id)), &ShowQuery { contents }).await
    }

    /// Resolves an unknown operation.
    pub async fn resolve(
        &self,
        id: &str,
        how: Resolution,
        request: &ResolveRequest,
    ) -> ApiResult<ResolveResponse> {
        let id = self.whole_id(id).await?;
        self.post(&format!("/keys/{id}/{}", how.as_str()), request).await
    }

    /// Removes an outcome before its retention ends.
    pub async fn remove(
        &self,
        id: &str,
        how: Removal,
        request: &RemoveRequest,
    ) -> ApiResult<RemoveResponse> {
        let id = self.whole_id(id).await?;
        self.post(&format!("/keys/{id}/{}", how.as_str()), request).await
    }

    /// A page of sagas.
    pub async fn sagas(&self, filter: &SagaFilter) -> ApiResult<SagaPage> {
        self.get("/sagas", filter).await
    }

    /// A saga, by the id of its record or at least the first 8 digits of it.
    pub async fn saga(&self, id: &str, contents: bool) -> ApiResult<SagaDetail> {
        self.get(&format!("/sagas/{}", segment(id)), &ShowQuery { contents }).await
    }

    /// Makes a stuck or parked saga due again.
    pub async fn retry(&self, id: &str, request: &RetryRequest) -> ApiResult<RetryResponse> {
        let id = self.whole_id(id).await?;
        self.post(&format!("/sagas/{id}/retry"), request).await
    }

    /// All digits of an id. Changes require them, so an abbreviated id is looked up first.
    async fn whole_id(&self, id: &str) -> Result<String, ClientError> {
        if id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(id.to_owned());
        }
        Ok(self.key(id, false).await?.value.row.id)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> ApiResult<T> {
        let query = serde_urlencoded::to_string(query).map_err(unexpected)?;
        let path = format!("{path}?{query}");
        reply(self.send(Method::GET, &path, Bytes::new()).await?)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> ApiResult<T> {
        let body = serde_json::to_vec(request).map_err(unexpected)?;
        reply(self.send(Method::POST, path, body.into()).await?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = self.request(method, path, body)?;
        self.in_time(self.exchange(request)).await
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        request.body(Full::new(body)).map_err(unexpected)
    }

    pub(crate) async fn in_time<T>(
        &self,
        exchange: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, ClientError> {
        let exchanged = tokio::time::timeout(TIMEOUT, exchange).await;
        let exchanged = exchanged.map_err(|_| ClientError::TimedOut(self.authority.clone()))?;
        exchanged.map_err(|error| ClientError::Unreachable(self.authority.clone(), error))
    }

    /// The head of the response; its body comes while the connection lives.
    pub(crate) async fn connect_and_send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, AbortHandle), BoxError> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection).abort_handle();
        Ok((sender.send_request(request).await?, driver))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), BoxError> {
        let (response, driver) = self.connect_and_send(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await?;
        driver.abort();
        Ok((status, body.to_bytes()))
    }
}

/// Without the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) | Self::Unexpected(why) => f.write_str(why),
            Self::Unreachable(authority, _) => {
                write!(f, "cannot reach the gateway's admin API at {authority}")
            }
            Self::TimedOut(authority) => write!(f, "{authority} did not answer in time"),
            Self::Unauthorized => f.write_str("the gateway requires its admin token"),
            Self::Refused(_, problem) => write!(f, "{}: {}", problem.code, problem.detail),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable(_, source) => Some(&**source),
            _ => None,
        }
    }
}

/// An id as one segment of a path.
fn segment(id: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(id, NON_ALPHANUMERIC)
}

pub(crate) fn unexpected(error: impl fmt::Display) -> ClientError {
    ClientError::Unexpected(error.to_string())
}

fn reply<T: DeserializeOwned>((status, json): (StatusCode, Bytes)) -> ApiResult<T> {
    if status.is_success() {
        let value = serde_json::from_slice(&json).map_err(|error| {
            unexpected(format_args!("this is not a response of an admin API: {error}"))
        })?;
        return Ok(ApiResponse { value, json });
    }
    Err(refused(status, &json))
}

/// What a response that is no success says.
pub(crate) fn refused(status: StatusCode, json: &[u8]) -> ClientError {
    if status == StatusCode::UNAUTHORIZED {
        return ClientError::Unauthorized;
    }
    match serde_json::from_slice(json) {
        Ok(problem) => ClientError::Refused(status, problem),
        Err(_) => unexpected(format_args!("{status}: {}", String::from_utf8_lossy(json).trim())),
    }
}

fn authority(address: &str) -> Result<String, ClientError> {
    let wrong = |why: &str| ClientError::Address(format!("{address:?} {why}"));
    if address == "off" {
        return Err(ClientError::Address("the admin API is off: give its address".to_owned()));
    }
    if address.starts_with("https://") {
        return Err(wrong("cannot be used: the admin API has no TLS; use http://, or a tunnel"));
    }
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let uri: Option<Uri> = bare.parse().ok();
    let uri = uri.filter(|uri| uri.path() == "/" || uri.path().is_empty());
    let authority = uri.as_ref().and_then(Uri::authority);
    let authority = authority.ok_or_else(|| wrong("is no address, as in http://127.0.0.1:8081"))?;
    if authority.port().is_none() {
        return Ok(format!("{authority}:80"));
    }
    Ok(match authority.as_str().parse::<SocketAddr>() {
        Ok(all) if all.ip().is_unspecified() && all.is_ipv4() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, all.port())).to_string()
        }
        Ok(all) if all.ip().is_unspecified() => {
            SocketAddr::from((Ipv6Addr::LOCALHOST, all.port())).to_string()
        }
        _ => authority.to_string(),
    })
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

    #[test]
    fn a_filter_is_a_query_without_what_is_not_wanted() {
        let filter =
            KeyFilter { text: Some("a b&c".to_owned()), limit: Some(5), ..KeyFilter::default() };
        assert_eq!(serde_urlencoded::to_string(&filter).unwrap(), "text=a+b%26c&limit=5");
    }

    #[test]
    fn the_token_is_not_printed() {
        let client = Client::new("127.0.0.1:8081").unwrap().token("s3cret");
        assert_eq!(format!("{client:?}"), "Client { authority: \"127.0.0.1:8081\", .. }");
    }
}
