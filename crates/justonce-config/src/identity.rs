//! By what a route tells callers apart.

use http::header::AUTHORIZATION;

use super::settings::{RouteSettings, ScopePart};

/// Whether a route tells callers apart by what may be a bearer token.
pub(super) fn is_by_token(route: &RouteSettings) -> bool {
    route.scope.iter().any(|part| match part {
        ScopePart::Caller => true,
        ScopePart::Principal(name) => *name == AUTHORIZATION,
        _ => false,
    })
}

/// Whether a route tells callers apart by their addresses.
pub(super) fn is_by_address(route: &RouteSettings) -> bool {
    route.scope.contains(&ScopePart::Address)
}

/// What that means.
pub(super) const REFRESHED: &str = "A refreshed bearer token is a new caller: a retry that comes \
                                    with it executes again.";

/// Whether a route tells callers apart by claims of tokens.
pub(super) fn is_by_claim(route: &RouteSettings) -> bool {
    route.scope.iter().any(|part| matches!(part, ScopePart::Claim(_)))
}
