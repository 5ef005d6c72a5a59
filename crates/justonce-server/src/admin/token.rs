//! The token that callers must present.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use crate::config::Secret;

/// The token that callers must present, if any. All clones change together.
#[derive(Clone, Debug)]
pub(crate) struct Token(Arc<ArcSwapOption<blake3::Hash>>);

impl Token {
    pub(crate) fn new(secret: Option<&Secret>) -> Self {
        let hash = |secret: &Secret| Arc::new(blake3::hash(secret.reveal().as_bytes()));
        Self(Arc::new(ArcSwapOption::new(secret.map(hash))))
    }

    /// Replaces it. False if it is the same.
    pub(crate) fn replace(&self, secret: &Secret) -> bool {
        let new = blake3::hash(secret.reveal().as_bytes());
        self.0.swap(Some(Arc::new(new))).is_none_or(|old| *old != new)
    }

    pub(crate) fn is_demanded(&self) -> bool {
        self.0.load().is_some()
    }

    /// Whether the caller presents it. Hashes are compared, in constant time, so that the time
    /// reveals nothing about the token.
    pub(crate) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.0.load_full() else { return true };
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        shown.is_some_and(|token| blake3::hash(token.as_bytes()) == *wanted)
    }
}

/// Refuses requests without the token.
pub(crate) async fn demand(State(token): State<Token>, request: Request, next: Next) -> Response {
    if token.is_shown(request.headers()) {
        return next.run(request).await;
    }
    let message = "Show the token: 'Authorization: Bearer <token>'.\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(token: &Token, value: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        token.is_shown(&headers)
    }

    #[test]
    fn only_the_token_opens() {
        let token = Token::new(Some(&Secret::new("s3cret")));
        assert!(shown(&token, Some("Bearer s3cret")));
        assert!(shown(&token, Some("bearer  s3cret")));
        for wrong in [None, Some("Bearer s3cre"), Some("s3cret"), Some("Basic s3cret")] {
            assert!(!shown(&token, wrong), "{wrong:?}");
        }
        assert!(shown(&Token::new(None), None));
        token.replace(&Secret::new("other"));
        assert!(shown(&token, Some("Bearer other")) && !shown(&token, Some("Bearer s3cret")));
    }
}
