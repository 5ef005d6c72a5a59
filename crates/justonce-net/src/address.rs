//! What addresses of servers have in common. Each protocol parses its own form.

use std::net::IpAddr;

/// Why an address that asks for TLS is refused by a program without the feature `tls`.
pub const TLS_NOT_BUILT_IN: &str =
    "it requires TLS, and this program was built without it: enable the feature `tls`";

/// Whether a host, as an address has it, is this machine: `localhost`, `127.0.0.1`, `[::1]`.
///
/// ```
/// use justonce_net::is_loopback_host;
///
/// assert!(is_loopback_host("127.0.0.1") && is_loopback_host("[::1]"));
/// assert!(!is_loopback_host("127.0.0.1.example.com"));
/// ```
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(is_loopback)
}
