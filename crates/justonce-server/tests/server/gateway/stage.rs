//! What most tests begin with: a service, and a gateway in front of it.

use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// What is paid for.
pub(crate) const BODY: &str = r#"{"amount":5}"#;

/// A gateway with these settings, in front of a service that waits to be told what to do.
pub(crate) fn started(more: &str) -> (Home, Upstream, Gateway) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), more);
    let gateway = home.start();
    (home, upstream, gateway)
}
