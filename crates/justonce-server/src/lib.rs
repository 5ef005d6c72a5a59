//! The gateway.

pub mod listen;
pub mod proxy;
