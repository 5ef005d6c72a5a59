//! What a handler learns about its operation.

use justonce_core::engine::{Context, SaveError};
use justonce_core::{Checkpoint, Fence, Key};

/// What a handler learns about its operation, and can do in it. It is an extension of every
/// request that is executed under protection, and with the feature `axum` an extractor.
///
/// ```
/// # #[cfg(feature = "axum")]
/// # {
/// use justonce_http::Idempotent;
///
/// async fn pay(operation: Idempotent) -> String {
///     // The bank gets a key of its own, the same on every attempt.
///     let key = operation.child_key("bank");
///     format!("attempt {} under {}", operation.attempt(), key.as_str())
/// }
///
/// // Where keys are optional, so is this.
/// async fn order(operation: Option<Idempotent>) -> &'static str {
///     if operation.is_some() { "protected" } else { "unprotected" }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotent(Context);

impl Idempotent {
    pub(crate) const fn new(context: Context) -> Self {
        Self(context)
    }

    /// The caller's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.0.operation().key()
    }

    /// The key of a step of this operation, to send downstream.
    #[must_use]
    pub fn child_key(&self, step: &str) -> Key {
        self.0.child_key(step)
    }

    /// The fence, to hand to systems that check it.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// The last recovery point of the attempt before, under `resume`.
    #[must_use]
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.0.checkpoint()
    }

    /// Saves a recovery point.
    ///
    /// # Errors
    ///
    /// If the point is too large, the claim was lost, or the store fails.
    pub async fn save(&self, name: &str, data: impl Into<bytes::Bytes>) -> Result<(), SaveError> {
        self.0.save(name, data).await
    }

    /// What the engine offers to handlers beyond this.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.0
    }
}

#[cfg(feature = "axum")]
mod axum {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, Response};
    use http::StatusCode;
    use http::request::Parts;

    use super::Idempotent;

    /// The request is not protected: the route is outside the layer, or has no key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NotProtected;

    impl IntoResponse for NotProtected {
        fn into_response(self) -> Response {
            let message = "this handler runs only for requests with an idempotency key";
            (StatusCode::BAD_REQUEST, message).into_response()
        }
    }

    impl<S: Sync> FromRequestParts<S> for Idempotent {
        type Rejection = NotProtected;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotProtected> {
            parts.extensions.get().cloned().ok_or(NotProtected)
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Idempotent {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, std::convert::Infallible> {
            Ok(parts.extensions.get().cloned())
        }
    }
}

#[cfg(feature = "axum")]
pub use axum::NotProtected;
