//! What is logged of addresses: not more of a query than is wished.

use justonce::http::WELL_KNOWN;

use crate::config::LoggedQuery;

/// The longest path, query or header that is logged whole.
const MAX_BYTES: usize = 2048;
/// What stands at the end of one that was cut.
const CUT: &str = "...";

/// The path of a request. Where the layer tells about a key, the key is a part of it, and left out.
pub(super) fn path(path: &str) -> String {
    if path.starts_with(WELL_KNOWN) && !path.get(WELL_KNOWN.len()..).unwrap_or("/").contains('/') {
        return format!("{WELL_KNOWN}*");
    }
    cut(path)
}

/// What is logged of a query.
pub(super) fn query(query: Option<&str>, logged: LoggedQuery) -> Option<String> {
    let query = query?;
    match logged {
        LoggedQuery::None => None,
        LoggedQuery::Values => Some(cut(query)),
        LoggedQuery::Names => {
            let name = |pair: &str| pair.split_once('=').map_or(pair, |(name, _)| name).to_owned();
            let names: Vec<String> = query.split('&').map(name).collect();
            Some(cut(&names.join("&")))
        }
    }
}

/// What is logged of the page that a request comes from: neither credentials nor a fragment, and
/// not more of its query than of the request's own.
pub(super) fn referer(address: &str, logged: LoggedQuery) -> String {
    let address = address.split('#').next().unwrap_or_default();
    let (page, rest) = match address.split_once('?') {
        None => (address, None),
        Some((page, rest)) => (page, query(Some(rest), logged)),
    };
    let page = match page.split_once("://") {
        None => page.to_owned(),
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
    };
    cut(&rest.map_or(page.clone(), |rest| format!("{page}?{rest}")))
}

/// A text that is not too long.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let kept = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
    format!("{kept}{CUT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_paths_are_left_out() {
        assert_eq!(path("/.well-known/idempotency/secret-key"), "/.well-known/idempotency/*");
        let page = "/.well-known/idempotency/errors/in-flight";
        assert_eq!(path(page), page);
        assert_eq!(path("/payments/1"), "/payments/1");
        assert_eq!(path(&"/ä".repeat(3000)).len(), MAX_BYTES - 1 + CUT.len());
    }

    #[test]
    fn queries_are_logged_as_wished() {
        let shown = |logged| query(Some("token=secret&a&b=1=2&"), logged);
        assert_eq!(shown(LoggedQuery::None), None);
        assert_eq!(shown(LoggedQuery::Names).as_deref(), Some("token&a&b&"));
        assert_eq!(shown(LoggedQuery::Values).as_deref(), Some("token=secret&a&b=1=2&"));
        assert_eq!(query(None, LoggedQuery::Values), None);
    }

    #[test]
    fn pages_lose_what_may_be_secret() {
        let page = "https://me:pw@shop.example/a?token=secret#part";
        assert_eq!(referer(page, LoggedQuery::None), "https://shop.example/a");
        assert_eq!(referer(page, LoggedQuery::Names), "https://shop.example/a?token");
        assert_eq!(referer("https://me:pw@shop", LoggedQuery::None), "https://shop");
        assert_eq!(referer("/a@b", LoggedQuery::None), "/a@b");
    }
}
