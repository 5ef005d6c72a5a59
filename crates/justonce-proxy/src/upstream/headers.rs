//! The headers of forwarded messages: those of one hop are removed, those about the client added.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, Uri, Version, request};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use justonce_http::headers::remove_per_hop;

use super::request_body::RequestBody;
use crate::client::Client;
use crate::forwarded;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const VIA: HeaderValue = HeaderValue::from_static("1.1 justonce");
const ZERO: HeaderValue = HeaderValue::from_static("0");
const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// Prepares a client's request for an upstream. Returns the client's side of the upgrade, if the
/// request asks for one.
pub(super) fn prepare(request: &mut Request<RequestBody>, via: bool) -> Option<OnUpgrade> {
    // Upgrades are for GET only: with other methods they would bypass the protection.
    let upgrade = if request.version() == Version::HTTP_11 && *request.method() == Method::GET {
        upgrade_protocol(request.headers())
    } else {
        None
    };
    let switch = upgrade.is_some().then(|| hyper::upgrade::on(&mut *request));
    let mut uri = std::mem::take(request.uri_mut());
    move_host(&mut uri, request.headers_mut());
    *request.uri_mut() = uri;
    strip(request.headers_mut());
    if let Some(protocol) = upgrade {
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    frame(request);
    if let Some(client) = request.extensions_mut().remove::<Client>() {
        forwarded::write(request.headers_mut(), &client);
    }
    if via {
        request.headers_mut().append(header::VIA, VIA);
    }
    *request.version_mut() = Version::HTTP_11;
    switch
}

/// Prepares an upstream's response for the client.
pub(super) fn clean_response<B>(response: &mut Response<B>, via: bool) {
    strip(response.headers_mut());
    if via {
        response.headers_mut().append(header::VIA, VIA);
    }
    *response.version_mut() = Version::HTTP_11;
}

/// Removes headers of one hop from trailers: some receivers refuse trailers that have them.
pub(super) fn clean_trailers(trailers: &mut HeaderMap) {
    PER_HOP.iter().for_each(|name| drop(trailers.remove(name)));
}

/// The headers of an informational response for the client.
pub(super) fn informational(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    strip(&mut headers);
    headers.remove(header::CONTENT_LENGTH);
    // Headers between the upstream and the gateway are not for clients.
    let ours = |name: &&HeaderName| name.as_str().starts_with("idempoten");
    let ours: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
    headers
}

/// Whether the body of a response ends only with the connection. A broken connection looks the
/// same. HTTP/1.0 has no other way.
pub(super) fn is_unframed<B: Body>(response: &Response<B>) -> bool {
    let body = response.body();
    let is_chunked = || names(response.headers(), &header::TRANSFER_ENCODING).last();
    response.version() == Version::HTTP_11
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !is_chunked().is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// The idle timeout that a response announces with `Keep-Alive`, less a second: a request that is
/// on its way when the upstream closes may be lost.
pub(super) fn announced_idle_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds = names(headers, &KEEP_ALIVE).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.parse::<u32>().ok())?
    })?;
    let announced = Duration::from_secs(seconds.into());
    Some(announced.saturating_sub(IDLE_MARGIN).max(announced / 2))
}

/// How long before the announced end a connection is not used any more.
const IDLE_MARGIN: Duration = Duration::from_secs(1);

/// Changes the head of a client's request to what an upstream would get, so that it can be stored
/// and sent later.
pub fn make_forwarded(parts: &mut request::Parts) {
    move_host(&mut parts.uri, &mut parts.headers);
    strip(&mut parts.headers);
    if let Some(client) = parts.extensions.remove::<Client>() {
        forwarded::write(&mut parts.headers, &client);
    }
}

/// Adds the headers about the client, before anything is computed from a request: scopes and
/// fingerprints must see them as the service does.
pub fn add_forwarded(parts: &mut request::Parts) {
    remove_per_hop(&mut parts.headers);
    if !parts.headers.contains_key(header::HOST)
        && let Some(host) = host_in(&parts.uri)
    {
        parts.headers.insert(header::HOST, host);
    }
    if let Some(client) = parts.extensions.remove::<Client>() {
        forwarded::write(&mut parts.headers, &client);
    }
}

/// The host in the URI of a request, as HTTP/2 has it.
fn host_in(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    HeaderValue::from_str(authority.rsplit('@').next()?).ok()
}

/// Moves the host of a request from its URI, where it takes precedence, to `Host`.
pub(super) fn move_host(uri: &mut Uri, headers: &mut HeaderMap) {
    if uri.authority().is_none() {
        return;
    }
    if let Some(host) = host_in(uri) {
        headers.insert(header::HOST, host);
    }
    *uri = uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
}

fn upgrade_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(header::UPGRADE)?;
    if names(headers, &header::UPGRADE).any(is_http) {
        return None;
    }
    names(headers, &header::CONNECTION)
        .any(|name| name.eq_ignore_ascii_case("upgrade"))
        .then(|| protocol.clone())
}

/// Whether requests of a protocol would bypass the gateway.
fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim();
    ["h2c", "h2", "h3", "http", "https", "tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

/// The comma-separated parts of all lines of a header.
fn names<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

/// The headers that concern one hop only.
static PER_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// Removes the headers of one hop: the known ones and those that `Connection` names.
fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| PER_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = names(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(may_be_named)
        .collect();
    let trailers = names(headers, &header::TE).any(|part| part.eq_ignore_ascii_case("trailers"));
    for name in named.iter().chain(&PER_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether `Connection` can name a header. Those that framing or the protection depends on cannot
/// be removed that way.
fn may_be_named(name: &HeaderName) -> bool {
    !matches!(*name, header::HOST | header::CONTENT_LENGTH | header::AUTHORIZATION)
        && !name.as_str().starts_with("idempotency-")
}

/// Sets the framing headers by the body itself, whatever the client's headers say.
fn frame(request: &mut Request<RequestBody>) {
    let known = request.body().size_hint().exact();
    let empty = request.body().is_end_stream();
    let expected = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    let headers = request.headers_mut();
    let given = headers.get(header::CONTENT_LENGTH);
    match known {
        _ if empty && given.is_none() && !expected => {}
        _ if empty => {
            if given.is_none_or(|given| *given != ZERO) {
                headers.insert(header::CONTENT_LENGTH, ZERO);
            }
        }
        Some(length) => {
            let given =
                given.and_then(|given| given.to_str().ok()).and_then(|given| given.parse().ok());
            if given != Some(length) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        None => {
            headers.remove(header::CONTENT_LENGTH);
            headers.insert(header::TRANSFER_ENCODING, CHUNKED);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::{Empty, Full};

    use super::*;
    use crate::client::ClientScheme;

    fn request(method: Method, uri: &str, headers: &[(&str, &str)]) -> Request<RequestBody> {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(RequestBody::new(Empty::new())).unwrap()
    }

    fn prepared(uri: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let mut request = request(Method::GET, uri, headers);
        prepare(&mut request, false);
        lines(request.headers())
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn headers_of_one_hop_end_here() {
        let sent = prepared(
            "/",
            &[
                ("host", "shop"),
                ("connection", "keep-alive, X-Secret"),
                ("connection", "x-other"),
                ("keep-alive", "timeout=5"),
                ("x-secret", "1"),
                ("x-other", "2"),
                ("x-kept", "3"),
                ("proxy-authorization", "Basic eA=="),
                ("proxy-connection", "close"),
                ("te", "gzip, trailers"),
                ("expect", "100-continue"),
                ("upgrade", "h2c"),
            ],
        );
        assert_eq!(sent, ["host: shop", "te: trailers", "x-kept: 3"]);
    }

    #[test]
    fn what_the_guarantee_depends_on_cannot_be_removed_by_naming_it() {
        let sent = prepared(
            "/",
            &[
                ("connection", "idempotency-fence, authorization, host"),
                ("host", "shop"),
                ("authorization", "Bearer x"),
                ("idempotency-fence", "7"),
            ],
        );
        assert_eq!(sent, ["authorization: Bearer x", "host: shop", "idempotency-fence: 7"]);
    }

    #[test]
    fn the_host_in_the_uri_counts() {
        let mut one = request(Method::GET, "http://real:80/a?b", &[("host", "told")]);
        prepare(&mut one, false);
        assert_eq!(one.uri(), "/a?b");
        assert_eq!(lines(one.headers()), ["host: real:80"]);
    }

    #[test]
    fn upgrades_keep_their_two_headers() {
        let headers = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let mut one = request(Method::GET, "/", &headers);
        assert!(prepare(&mut one, false).is_some());
        assert_eq!(lines(one.headers()), ["connection: upgrade", "upgrade: websocket"]);

        let mut other = request(Method::GET, "/", &headers[1..]);
        assert!(prepare(&mut other, false).is_none());

        let mut post = request(Method::POST, "/", &headers);
        assert!(prepare(&mut post, false).is_none());
        assert_eq!(lines(post.headers()), ["content-length: 0"]);
    }

    #[test]
    fn clients_are_introduced() {
        let client = Client::new("203.0.113.9:1234".parse().unwrap(), ClientScheme::Https);
        let mut one = request(
            Method::GET,
            "/",
            &[("host", "shop"), ("x-forwarded-for", "10.0.0.1"), ("x-forwarded-host", "forged")],
        );
        one.extensions_mut().insert(client);
        prepare(&mut one, true);
        assert_eq!(
            lines(one.headers()),
            [
                "forwarded: for=203.0.113.9;host=shop;proto=https",
                "host: shop",
                "via: 1.1 justonce",
                "x-forwarded-for: 203.0.113.9",
                "x-forwarded-host: shop",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn bodies_are_framed_by_what_they_are() {
        let full = || RequestBody::new(Full::from("12345"));
        let empty = || RequestBody::new(Empty::new());
        let stream = || RequestBody::new(Unsized);
        type Make<'a> = &'a dyn Fn() -> RequestBody;
        let table: [(Method, Make<'_>, Option<&str>, &[&str]); 7] = [
            (Method::POST, &full, Some("5"), &["content-length: 5"]),
            (Method::POST, &full, Some("3"), &["content-length: 5"]),
            (Method::POST, &full, None, &["content-length: 5"]),
            (Method::POST, &empty, None, &["content-length: 0"]),
            (Method::GET, &empty, Some("9"), &["content-length: 0"]),
            (Method::GET, &empty, None, &[]),
            (Method::GET, &stream, Some("9"), &["transfer-encoding: chunked"]),
        ];
        for (method, body, said, framed) in table {
            let said: Vec<_> = said.map(|said| ("content-length", said)).into_iter().collect();
            let mut one = request(method, "/", &said).map(|_| body());
            prepare(&mut one, false);
            assert_eq!(lines(one.headers()), framed);
        }
    }

    #[test]
    fn what_upstreams_announce_is_read() {
        let kept = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, HeaderValue::from_static(line));
            announced_idle_timeout(&headers).map(|kept| kept.as_millis())
        };
        assert_eq!(kept("timeout=5"), Some(4000));
        assert_eq!(kept("max=100, Timeout = \"60\""), Some(59_000));
        assert_eq!(kept("timeout=1"), Some(500));
        assert_eq!(kept("timeout=0"), Some(0));
        for nothing in ["max=100", "timeout=", "timeout=-1", "timeout", ""] {
            assert_eq!(kept(nothing), None, "{nothing}");
        }
    }

    /// A body that does not say how long it is.
    struct Unsized;

    impl Body for Unsized {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(None)
        }
    }
}
