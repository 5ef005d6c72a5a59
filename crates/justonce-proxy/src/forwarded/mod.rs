//! The client behind proxies: which of them are trusted, and what the upstream gets.
//!
//! A proxy adds the address of whoever connected to it. So the list is read from its end: the last
//! entry comes from the proxy that connected to us, the one before it from the proxy before, as
//! long as each of them is trusted. The first address that is not a trusted proxy's is the client.
//! What stands before it came from the client, which may write what it likes, and goes no further.

mod element;
mod find;
mod node;
mod trusted;
mod write;

pub(crate) use find::find;
pub use trusted::{ForwardedHeader, TrustedProxies};
pub(crate) use write::{clean_trailers, write};
