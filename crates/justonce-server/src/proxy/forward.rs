//! What is changed in a message on its way through: the headers of one hop, and who asked.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, Uri, Version, request};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use justonce::http::headers::remove_per_hop;

use super::body::SendBody;
use crate::listen::Client;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const VIA: HeaderValue = HeaderValue::from_static("1.1 justonce");
const ZERO: HeaderValue = HeaderValue::from_static("0");
const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// Makes a client's request one of ours. Given back is the client's side of another protocol, if
/// the request asks to switch to one.
pub(super) fn prepare(request: &mut Request<SendBody>, via: bool) -> Option<OnUpgrade> {
    // Whoever leaves HTTP does so with GET: on other methods it would be a way around protection.
    let upgrade = if request.version() == Version::HTTP_11 && *request.method() == Method::GET {
        wanted_protocol(request.headers())
    } else {
        None
    };
    let switch = upgrade.is_some().then(|| hyper::upgrade::on(&mut *request));
    if let Some((uri, host)) = host_of(request.uri()) {
        *request.uri_mut() = uri;
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    strip(request.headers_mut());
    if let Some(protocol) = upgrade {
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    frame(request);
    if let Some(client) = request.extensions_mut().remove::<Client>() {
        introduce(request.headers_mut(), &client);
    }
    if via {
        request.headers_mut().append(header::VIA, VIA);
    }
    *request.version_mut() = Version::HTTP_11;
    switch
}

/// Makes an upstream's answer one of ours.
pub(super) fn clean_response<B>(response: &mut Response<B>, via: bool) {
    strip(response.headers_mut());
    if via {
        response.headers_mut().append(header::VIA, VIA);
    }
    *response.version_mut() = Version::HTTP_11;
}

/// The headers of an informational answer, for the client.
pub(super) fn informational(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    strip(&mut headers);
    headers.remove(header::CONTENT_LENGTH);
    // What an upstream tells us is not for clients, and what we tell clients is not the upstream's.
    let ours = |name: &&HeaderName| name.as_str().starts_with("idempoten");
    let ours: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
    headers
}

/// Whether only the end of the connection ends the body of an answer. A connection that was cut
/// off looks the same; HTTP/1.0 had nothing better.
pub(super) fn is_unframed<B: Body>(response: &Response<B>) -> bool {
    let body = response.body();
    let is_chunked = || names(response.headers(), &header::TRANSFER_ENCODING).last();
    response.version() == Version::HTTP_11
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !is_chunked().is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// For how long an upstream keeps its connection open after this answer, if it says so, less a
/// second: a request that is on its way when the upstream closes may be lost.
pub(super) fn kept_open(headers: &HeaderMap) -> Option<Duration> {
    let seconds = names(headers, &KEEP_ALIVE).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.parse::<u32>().ok())?
    })?;
    let kept = Duration::from_secs(seconds.into());
    Some(kept.saturating_sub(CLOSING).max(kept / 2))
}

/// How long before the end that an upstream announces a connection is not used any more.
const CLOSING: Duration = Duration::from_secs(1);

/// Makes the head of a client's request what an upstream would get, for whoever stores it and
/// sends it later.
pub(crate) fn as_forwarded(parts: &mut request::Parts) {
    if let Some((uri, host)) = host_of(&parts.uri) {
        parts.uri = uri;
        if let Some(host) = host {
            parts.headers.insert(header::HOST, host);
        }
    }
    strip(&mut parts.headers);
    if let Some(client) = parts.extensions.remove::<Client>() {
        introduce(&mut parts.headers, &client);
    }
}

/// Says who asked, before anything is computed from a request: what the service hears about that
/// is ours to say, and tells callers and tenants apart as it hears it.
pub(crate) fn introduced(parts: &mut request::Parts) {
    remove_per_hop(&mut parts.headers);
    if !parts.headers.contains_key(header::HOST)
        && let Some((_, Some(host))) = host_of(&parts.uri)
    {
        parts.headers.insert(header::HOST, host);
    }
    if let Some(client) = parts.extensions.remove::<Client>() {
        introduce(&mut parts.headers, &client);
    }
}

/// The host a request is for stands in its URI in HTTP/2, and wherever it does it is what counts.
/// Gives the URI without it, and the header that says it instead.
fn host_of(uri: &Uri) -> Option<(Uri, Option<HeaderValue>)> {
    let authority = uri.authority()?;
    let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
    let host = HeaderValue::from_str(host).ok();
    let path = uri.path_and_query().cloned();
    let rest = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    Some((rest, host))
}

fn wanted_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(header::UPGRADE)?;
    if names(headers, &header::UPGRADE).any(is_http_again) {
        return None;
    }
    names(headers, &header::CONNECTION)
        .any(|name| name.eq_ignore_ascii_case("upgrade"))
        .then(|| protocol.clone())
}

/// Whether a protocol would bring requests like all others, which nobody here would look at.
fn is_http_again(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim();
    ["h2c", "h2", "h3", "http", "https", "tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

/// The comma-separated parts of all lines of a header.
fn names<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

fn is_of_one_hop(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONNECTION
            | header::PROXY_AUTHENTICATE
            | header::PROXY_AUTHORIZATION
            | header::TE
            | header::TRANSFER_ENCODING
            | header::UPGRADE
            | header::EXPECT
    ) || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Removes what concerns one hop only, and what `Connection` says does.
fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(is_of_one_hop) {
        return;
    }
    let named: Vec<HeaderName> = names(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(may_be_named)
        .collect();
    let trailers = names(headers, &header::TE).any(|part| part.eq_ignore_ascii_case("trailers"));
    for name in named {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::EXPECT,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Nobody gets to remove, by naming it, what the message or the promise depends on.
fn may_be_named(name: &HeaderName) -> bool {
    !matches!(*name, header::HOST | header::CONTENT_LENGTH | header::AUTHORIZATION)
        && !name.as_str().starts_with("idempotency-")
}

/// Says how long the body is, by what it is and not by what somebody said about it.
fn frame(request: &mut Request<SendBody>) {
    let known = request.body().size_hint().exact();
    let empty = request.body().is_end_stream();
    let expected = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    let headers = request.headers_mut();
    let said = headers.get(header::CONTENT_LENGTH);
    match known {
        _ if empty && said.is_none() && !expected => {}
        _ if empty => {
            if said.is_none_or(|said| *said != ZERO) {
                headers.insert(header::CONTENT_LENGTH, ZERO);
            }
        }
        Some(length) => {
            let said = said.and_then(|said| said.to_str().ok()).and_then(|said| said.parse().ok());
            if said != Some(length) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        None => {
            headers.remove(header::CONTENT_LENGTH);
            headers.insert(header::TRANSFER_ENCODING, CHUNKED);
        }
    }
}

/// Tells the upstream who asked, how, and for which host.
fn introduce(headers: &mut HeaderMap, client: &Client) {
    let before = headers.get_all(X_FORWARDED_FOR);
    let value = match before.iter().next() {
        None => client.forwarded_for().clone(),
        Some(_) => listed(before.iter(), client.forwarded_for()),
    };
    headers.insert(X_FORWARDED_FOR, value);
    headers.insert(X_FORWARDED_PROTO, client.scheme().header());
    match headers.get(header::HOST).cloned() {
        Some(host) => headers.insert(X_FORWARDED_HOST, host),
        None => headers.remove(X_FORWARDED_HOST),
    };
}

fn listed<'a>(before: impl Iterator<Item = &'a HeaderValue>, last: &HeaderValue) -> HeaderValue {
    let mut list = Vec::new();
    for value in before {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(last.as_bytes());
    HeaderValue::from_maybe_shared(Bytes::from(list)).unwrap_or_else(|_| last.clone())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use http_body_util::{Empty, Full};

    use super::*;
    use crate::listen::ClientScheme;

    fn request(method: Method, uri: &str, headers: &[(&str, &str)]) -> Request<SendBody> {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(SendBody::new(Empty::new())).unwrap()
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
    fn what_the_promise_depends_on_cannot_be_removed_by_naming_it() {
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
                "host: shop",
                "via: 1.1 justonce",
                "x-forwarded-for: 10.0.0.1, 203.0.113.9",
                "x-forwarded-host: shop",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn bodies_are_framed_by_what_they_are() {
        let full = || SendBody::new(Full::from("12345"));
        let empty = || SendBody::new(Empty::new());
        let stream = || SendBody::new(Unsized);
        type Make<'a> = &'a dyn Fn() -> SendBody;
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
            kept_open(&headers).map(|kept| kept.as_millis())
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
