//! What the fuzz targets need of the facade: the protocol and the layer, without a store.
//!
//! Everything here is built anew with its own flags. Without the store and the server that takes a
//! third of the time.

pub use justonce_core::*;
pub use justonce_http as http;
