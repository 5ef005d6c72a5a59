//! What addresses of servers have in common. Each protocol parses its own form.

/// Why an address that asks for TLS is refused by a program without the feature `tls`.
pub const TLS_NOT_BUILT_IN: &str =
    "it requires TLS, and this program was built without it: enable the feature `tls`";
