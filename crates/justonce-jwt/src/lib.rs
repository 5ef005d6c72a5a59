//! Verifies the tokens (JWT, RFC 7519) that identify callers.
//!
//! A [`Verifier`] knows some issuers. For each it keeps the public keys (a JWK Set, RFC 7517), from
//! a file or over HTTPS, fetched in the background and again when a token names a key that is not
//! among them. It is the [`TokenVerifier`](justonce_http::TokenVerifier) of an idempotency layer.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::SystemTime;
//!
//! use justonce_core::worker::Schedule;
//! use justonce_core::{Engine, ManualClock, Timestamp, memory::MemoryStore};
//! use justonce_http::{Claim, Idempotency, Rule, ScopePart};
//! use justonce_jwt::{IssuerSettings, KeySource, Verifier, VerifierParts};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = KeySource::File("/etc/shop/keys.json".into());
//! let audience = vec!["https://shop.example.com".to_owned()];
//! let issuer = IssuerSettings::new("login", "https://login.example.com", audience, keys);
//! # #[expect(clippy::disallowed_methods, reason = "the example shows how to inject it")]
//! let clock = || Timestamp::from(SystemTime::now());
//! let parts = VerifierParts {
//!     clock: Arc::new(clock),
//!     schedule: Arc::new(|pause| Schedule::every("jwks", pause)),
//! };
//! let verifier = Verifier::new(vec![issuer], parts);
//!
//! let engine = Engine::new(MemoryStore::new(ManualClock::default()));
//! let rule = Rule::default().scope(vec![ScopePart::Claim(Claim::parse("sub")?)]);
//! let layer = Idempotency::builder(engine).default_rule(rule).token_verifier(verifier).build();
//! # Ok(())
//! # }
//! ```
//!
//! What is accepted is the least that is needed: tokens in compact form with an asymmetric
//! signature, by a key of the issuer that the token names and that is configured. `none`, HMAC, and
//! keys that a token brings along are never accepted. Nothing that a stranger sends causes more
//! than a bounded amount of work: the length of tokens, the number of keys, and the rate of fetches
//! are limited.

mod algorithm;
mod cache;
mod check;
mod fetch;
mod key_set;
mod keys;
pub mod metrics;
mod public_key;
mod settings;
mod token;
mod verifier;

pub use algorithm::Algorithm;
pub use key_set::{KeySet, KeySetError, MAX_DOCUMENT_BYTES, MAX_KEYS};
pub use settings::{
    DEFAULT_LEEWAY, DEFAULT_MAX_AGE, DEFAULT_REFRESH, DEFAULT_UNKNOWN_KEY_PAUSE, IssuerSettings,
    KeySource, SourceError,
};
pub use token::MAX_TOKEN_BYTES;
pub use verifier::{Verifier, VerifierParts};
