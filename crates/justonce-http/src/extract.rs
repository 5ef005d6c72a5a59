//! The operation of a request, for handlers.

use justonce_core::engine::{Context, SaveError};
use justonce_core::{Checkpoint, Fence, Key};

/// The operation that a handler executes: an extension of every protected request, and with the
/// feature `axum` an extractor.
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

    /// A key for one step of this operation, to send to another service.
    #[must_use]
    pub fn child_key(&self, step: &str) -> Key {
        self.0.child_key(step)
    }

    /// The fence, for systems that check it.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// The last checkpoint of the previous attempt, under `resume`.
    #[must_use]
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.0.checkpoint()
    }

    /// Saves a checkpoint.
    ///
    /// # Errors
    ///
    /// If the checkpoint is too large, the claim was lost, or the store fails.
    pub async fn save(&self, name: &str, data: impl Into<bytes::Bytes>) -> Result<(), SaveError> {
        self.0.save(name, data).await
    }

    /// Everything else that the engine offers to handlers.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.0
    }
}

#[cfg(feature = "axum")]
mod axum {
    use std::convert::Infallible;

    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, Response};
    use http::StatusCode;
    use http::request::Parts;

    use super::Idempotent;

    /// The request is not protected: its route is outside the layer, or it has no key.
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
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get().cloned())
        }
    }
}

#[cfg(feature = "axum")]
pub use axum::NotProtected;
