//! gRPC: which requests are calls, what their messages are, and refusals in its form.
//!
//! A call with a key is unary: it has one message, and is read whole before anything is claimed.
//! Whether its operation took effect is told by the status in the trailers of its response
//! ([`StatusRules`](crate::StatusRules)).

mod message;
mod refusal;

pub use message::is_grpc;
pub(crate) use message::{NotUnary, UnaryBody, compared, is_call};
pub(crate) use refusal::{GrpcResponse, broken_off};
