//! What the other modules share: the gateway's process, a client and a service that do what a test
//! says.

pub(crate) mod client;
pub(crate) mod process;
pub(crate) mod upstream;
