//! What the tests of the two sides share: upstreams that do exactly what they are told, a
//! gateway without rules, and clients that speak in bytes.

mod bytes;
mod frames;
mod gateway;
mod upstream;

pub(crate) use bytes::{
    Fed, content_length, read_answer, read_head, read_rest, say, settle, shout,
};
pub(crate) use frames::Frames;
pub(crate) use gateway::{Gateway, listener, listener_settings};
pub(crate) use upstream::{Dead, OK, Upstream, answer_all, proxy, proxy_settings, settings, url};
