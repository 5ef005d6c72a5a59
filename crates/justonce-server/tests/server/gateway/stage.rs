//! What most tests begin with: a service, and a gateway in front of it.

use crate::support::client::Call;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Connection, Upstream};

/// What is paid for.
pub(crate) const BODY: &str = r#"{"amount":5}"#;

/// A gateway with these settings, in front of a service that waits to be told what to do.
pub(crate) fn started(more: &str) -> (Home, Upstream, Gateway) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), more);
    let gateway = home.start();
    (home, upstream, gateway)
}

/// Both ends of a connection through the gateway that has switched to another protocol.
pub(crate) fn upgraded(upstream: &Upstream, gateway: &Gateway) -> (Call, Connection) {
    let mut client = Call::connect(gateway.address);
    client.write(b"GET /ws HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let mut server = upstream.accept();
    server.read();
    server
        .write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.answer().status(), 101);
    (client, server)
}
