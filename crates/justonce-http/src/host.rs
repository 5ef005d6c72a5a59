//! Which host a request is for. Pure.
//!
//! It stands in the header `Host`, in the target (HTTP/2 has it there, and absolute targets do), or
//! in both: then both must say the same.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Uri, request};

/// A request names two hosts, so two readers could take it for different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TwoHosts;

/// Puts the host of the target into the header if there is none, so that there is one place to
/// read it from.
pub(crate) fn settle(parts: &mut request::Parts) -> Result<(), TwoHosts> {
    let mut lines = parts.headers.get_all(HOST).into_iter();
    let (told, second) = (lines.next(), lines.next());
    if second.is_some() {
        return Err(TwoHosts);
    }
    let Some(target) = of_target(&parts.uri) else { return Ok(()) };
    match told {
        Some(told) => {
            let told = told.to_str().map_err(|_| TwoHosts)?;
            let port = match parts.uri.scheme_str() {
                Some("https") => HTTPS,
                _ => HTTP,
            };
            let bare = |host: &str| without_port(host, &[port]).to_ascii_lowercase();
            if bare(told) == bare(target) { Ok(()) } else { Err(TwoHosts) }
        }
        None => {
            let value = HeaderValue::from_str(target).map_err(|_| TwoHosts)?;
            parts.headers.insert(HOST, value);
            Ok(())
        }
    }
}

/// The host as requests are compared by it: in small letters, and without a port that goes without
/// saying. Nothing if the request names none.
pub(crate) fn compared(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    let told = headers.get(HOST)?.as_bytes();
    let Ok(text) = std::str::from_utf8(told) else { return Some(told.into()) };
    let bare = without_port(text, &[HTTP, HTTPS]);
    if bare.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(bare.to_ascii_lowercase().into_bytes().into());
    }
    Some(bare.as_bytes().into())
}

const HTTP: &str = ":80";
const HTTPS: &str = ":443";

fn without_port<'h>(host: &'h str, ports: &[&str]) -> &'h str {
    ports.iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host)
}

/// The host in a target. A user's name is no part of it.
fn of_target(uri: &Uri) -> Option<&str> {
    let authority = uri.authority()?.as_str();
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(target: &str, hosts: &[&str]) -> Result<Option<String>, TwoHosts> {
        let mut request = http::Request::post(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        settle(&mut parts)?;
        let host = compared(&parts.headers);
        Ok(host.map(|host| String::from_utf8_lossy(&host).into_owned()))
    }

    #[test]
    fn target_and_header_are_one_thing() {
        let shop = Ok(Some("shop".to_owned()));
        for (target, hosts) in [
            ("/", &["shop"][..]),
            ("/", &["SHOP:443"]),
            ("http://shop/", &[]),
            ("http://ann@shop:80/", &[]),
            ("http://shop/", &["Shop:80"]),
            ("https://shop:443/", &["shop"]),
        ] {
            assert_eq!(settled(target, hosts), shop, "{target} {hosts:?}");
        }
        assert_eq!(settled("/", &[]), Ok(None));
        assert_eq!(settled("/", &["[::1]:8080"]), Ok(Some("[::1]:8080".to_owned())));
        assert_eq!(settled("/", &[""]), Ok(Some(String::new())));
    }

    #[test]
    fn contradictions_are_told() {
        for (target, hosts) in [
            ("/", &["a", "b"][..]),
            ("/", &["a", "a"]),
            ("http://a/", &["b"]),
            ("http://a/", &[""]),
            ("http://a:81/", &["a"]),
            ("https://a/", &["a:80"]),
        ] {
            assert_eq!(settled(target, hosts), Err(TwoHosts), "{target} {hosts:?}");
        }
    }
}
