//! The limits of the client side.

use std::time::Duration;

/// The HTTP/1 implementation needs at least this much for a head.
pub(super) const MIN_HEAD_BYTES: usize = 8192;
/// How many requests one HTTP/2 connection may have under way.
pub(super) const MAX_STREAMS: u32 = 256;
/// How many streams a client may reset before they are accepted; more ends the connection.
pub(super) const MAX_RESET_STREAMS: usize = 64;
/// How many streams may be reset for a client's own errors; more ends the connection.
pub(super) const MAX_ERROR_STREAMS: usize = 256;
/// How much of the bodies of one HTTP/2 connection may have arrived and wait to be read: with that,
/// an upload over a line of 100 ms still gets 2.5 MB/s, and ten thousand connections that upload
/// what nobody has room for take 2.5 GB and not 10.
pub(super) const WINDOW_BYTES: u32 = 256 * 1024;
/// After how long without traffic an HTTP/2 client is pinged.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long its response to the ping may take.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many connections the system queues for us.
pub(super) const BACKLOG: i32 = 4096;
/// How long after it was accepted the first request of a connection may come although the listener
/// ends: it is on its way.
pub(super) const FIRST_BYTES: Duration = Duration::from_secs(1);
/// How long accepting pauses when the system cannot open another connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits of a listener. Their defaults are those of the configuration.
///
/// ```
/// use std::time::Duration;
/// use justonce_proxy::ListenerSettings;
///
/// let settings = ListenerSettings {
///     max_connections: 1_000,
///     header_timeout: Duration::from_secs(10),
///     idle_timeout: Duration::from_secs(60),
///     body_timeout: Duration::from_secs(30),
///     max_head_bytes: 64 * 1024,
///     handshake_timeout: ListenerSettings::HANDSHAKE_TIMEOUT,
/// };
/// // For clients with slow connections.
/// let slow = ListenerSettings { body_timeout: Duration::from_secs(120), ..settings };
/// # assert_ne!(slow, settings);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// How many connections may be open; further ones are closed at once.
    pub max_connections: usize,
    /// How long the head of a request may take, from its first byte to its last.
    pub header_timeout: Duration,
    /// How long a connection may be idle, and how long a client may leave a response unread. It is
    /// checked five times in that period, so the end can be a fifth late.
    pub idle_timeout: Duration,
    /// How long the body of a request may pause.
    pub body_timeout: Duration,
    /// How many bytes the head of a request may have, at least 8 KiB. The number of headers is
    /// limited to 100 by the HTTP implementation.
    pub max_head_bytes: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
}

impl ListenerSettings {
    /// How long a TLS handshake may take: the configuration has no setting for it.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
}
