//! Cross-origin requests (CORS): which web pages may read the responses of a route.
//!
//! A service that knows CORS sets its headers on its own responses. Those of this layer, problems
//! above all, never pass the service: without the same headers, browsers hide them from the page.

mod origin;
mod response;
mod settings;

pub use origin::{Origin, OriginError};
pub(crate) use response::add_words;
pub use settings::{Cors, Preflights};
