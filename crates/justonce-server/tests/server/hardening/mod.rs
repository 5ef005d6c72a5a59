//! Hostile clients: whatever they send, or do not send, the gateway answers clearly or closes the
//! connection, stays small, and serves all other clients.

mod attacked;
mod connections;
mod frames;
mod http2;
mod http2_abuse;
mod injection;
mod malformed;
mod memory;
mod slow;
mod smuggling;
mod taped;
