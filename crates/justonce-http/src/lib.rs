//! Makes the operations of an HTTP service take effect **once**: a tower layer for axum and any
//! other tower service.
//!
//! A request with an `Idempotency-Key` is executed once, however often it is sent. Its response is
//! stored before the caller has received it whole, and every duplicate gets the stored response:
//!
//! ```
//! use axum::body::Body;
//! use axum::{Router, routing::post};
//! use http::Request;
//! use justonce_core::{Engine, ManualClock, memory::MemoryStore};
//! use justonce_http::Idempotency;
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(MemoryStore::new(ManualClock::default()));
//! let app: Router = Router::new()
//!     .route("/payments", post(async || "paid"))
//!     .layer(Idempotency::new(engine));
//!
//! let pay = || Request::post("/payments").header("idempotency-key", "order-17");
//! let first = app.clone().oneshot(pay().body(Body::empty())?).await?;
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//!
//! let retry = app.oneshot(pay().body(Body::empty())?).await?;
//! assert_eq!(retry.headers()["idempotent-replayed"], "true");
//! # Ok(())
//! # }
//! ```
//!
//! The settings of each route are a [`Rule`]: where its key comes from, what makes two requests the
//! same, whether duplicates wait, which responses are stored and for how long.
//!
//! If a caller disconnects, its operation continues, and the retry gets the outcome. If it is
//! unknown whether an operation took effect, it is not executed again until that is resolved.

mod begin;
mod body;
mod caller;
mod caller_limits;
mod capture;
mod certificate;
mod claims;
mod client;
mod cors;
mod credentials;
mod detach;
mod effect;
mod execute;
mod extract;
mod fingerprint;
mod grpc;
mod grpc_status;
pub mod headers;
mod identify;
mod key;
mod layer;
mod limited;
mod meters;
pub mod metrics;
mod outcome;
mod preflight;
mod problem;
mod protect;
mod read;
mod report;
mod resend;
mod routes;
mod rule;
mod service;
mod shared;
mod stored_request;
mod target;
mod trace;
mod well_known;

pub use crate::metrics::describe_metrics;
pub use body::{BoxError, RequestBody, ResponseBody};
pub use caller_limits::{CallerLimits, CallerUsage, DEFAULT_CALLERS, Rate};
pub use certificate::ClientCertificate;
pub use claims::{
    Claim, ClaimError, PendingVerification, TokenRefusal, TokenVerifier, Verification,
    VerifiedClaims,
};
pub use client::ClientAddress;
pub use cors::{Cors, Origin, OriginError, Preflights};
pub use effect::{Cause, ResponseEffect, StatusRules, Unframed, UpstreamName};
pub use extract::Idempotent;
#[cfg(feature = "axum")]
pub use extract::NotProtected;
pub use grpc::is_grpc;
pub use grpc_status::GrpcStatus;
pub use key::{BadKey, KeyFormat, KeyShape, KeySource, KeySyntax, parse_key};
pub use layer::{Idempotency, IdempotencyBuilder};
pub use meters::metered;
pub use outcome::outcome_of;
pub use problem::{Instance, Problem, ProblemCode};
pub use report::RequestReport;
pub use resend::{Resent, ResentBody, can_resend};
pub use routes::{MatchedRoute, Pattern, PatternError};
pub use rule::{
    BodyMode, DEFAULT_MAX_WAIT, DEFAULT_REQUEST_BYTES, DEFAULT_STORED_BYTES, FingerprintRule,
    JsonFields, KeyPresence, PathEscapes, Rule, ScopePart, WhenBusy, WhenStoreDown,
};
pub use service::{Protected, ProtectedFuture};
pub use shared::{CircuitBreaker, UnknownListener};
pub use trace::TraceId;
pub use well_known::PREFIX as WELL_KNOWN;
