//! Makes the operations of an HTTP service take effect **once**: a tower layer for axum and any
//! other tower service.
//!
//! ```
//! use axum::{Router, routing::post};
//! use justonce_core::{Engine, ManualClock, memory::MemoryStore};
//! use justonce_http::Idempotency;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let engine = Engine::new(MemoryStore::new(ManualClock::default()));
//! let app: Router = Router::new()
//!     .route("/payments", post(async || "paid"))
//!     .layer(Idempotency::new(engine));
//! # }
//! ```
//!
//! A request with an `Idempotency-Key` is executed once. Its answer is stored before the caller has
//! it whole, and duplicates get the same answer again. What is the same request, who may wait, what
//! is stored and for how long is said by [`Rule`]s, one a route.
//!
//! A caller that leaves does not stop its operation: it goes on, and the retry finds its outcome.

mod admit;
mod again;
mod asked;
mod body;
mod caller;
mod capture;
mod cause;
mod cookies;
mod detach;
mod execute;
mod extract;
mod fate;
pub mod headers;
mod host;
mod key;
mod layer;
mod meters;
mod path;
mod pattern;
mod prefer;
mod problem;
mod protect;
mod read;
mod room;
mod routes;
mod rule;
mod same;
mod service;
mod shared;
mod status;
mod stored;
mod verdict;
mod well_known;

pub use again::{Resent, ResentBody, can_resend};
pub use body::{BoxError, RequestBody, ResponseBody};
pub use cause::{AnsweredBy, Cause, Instance};
pub use extract::Idempotent;
#[cfg(feature = "axum")]
pub use extract::NotProtected;
pub use key::{BadKey, KeyFormat, KeyShape, KeySource, KeySyntax, parse_key};
pub use layer::{Idempotency, IdempotencyBuilder};
pub use meters::{describe_metrics, metered};
pub use pattern::{Pattern, PatternError};
pub use problem::{Problem, ProblemCode};
pub use routes::MatchedRoute;
pub use rule::{
    BodyMode, DEFAULT_MAX_WAIT, DEFAULT_REQUEST_BYTES, DEFAULT_STORED_BYTES, FingerprintRule,
    KeyPresence, PathEscapes, Places, Rule, ScopePart, WhenBusy, WhenStoreDown,
};
pub use service::{Protected, ProtectedFuture};
pub use shared::{Gate, MetUnknown};
pub use status::{OnStatus, StatusRules};
pub use stored::outcome_of;
pub use verdict::{Unframed, Verdict};
pub use well_known::PREFIX as WELL_KNOWN;
