//! The access log: a line for each request, made when its response has ended.
//!
//! Lines are made in the task of their request, queued, and written by a thread of their own.
//! Whatever the disk or the reader of a pipe does, no request waits for it: when the queue is full,
//! lines are left out, counted and reported.

mod body;
mod entry;
mod escape;
mod line;
mod log;
mod query;
mod refused;
mod sample;
mod service;
mod target;
mod time;
mod writer;

pub(crate) use log::AccessLog;
pub(crate) use refused::Refused;
pub(crate) use service::Front;
