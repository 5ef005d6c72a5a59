//! Refuses requests of web pages. Without a token every process of the machine has access, and a
//! browser on the machine runs code of other origins.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};

/// Refuses what a web page could have sent: a host name (DNS rebinding), an origin, or a write in
/// a form that browsers send without a preflight.
pub(crate) async fn refuse_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_by_address(request.uri(), headers)
        || headers.contains_key(ORIGIN)
        || !(is_read || is_json(headers))
    {
        let message =
            "Send JSON as application/json, to the address itself, not from a web page.\n";
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    next.run(request).await
}

/// Whether the host is an address. A page of `evil.example`, a name that resolves to this machine,
/// sends that name: in the header, or in the target as HTTP/2 does.
pub(crate) fn is_by_address(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(|host| host.to_str().ok()?.parse().ok());
    let host = host.is_none_or(|host| host.is_some_and(|host| is_address(&host)));
    host && uri.authority().is_none_or(is_address)
}

fn is_address(authority: &Authority) -> bool {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_are_accepted_as_hosts() {
        let by = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            is_by_address(&Uri::from_static("/"), &headers)
        };
        for right in ["127.0.0.1:8081", "localhost:8081", "[::1]:8081", "10.0.0.5", "LOCALHOST"] {
            assert!(by(right), "{right}");
        }
        for wrong in ["evil.example", "localhost.evil.example:8081", "127.0.0.1.evil", ""] {
            assert!(!by(wrong), "{wrong}");
        }
    }
}
