//! What the tests of the contract share: a world with one store, a service, and callers.

pub(crate) mod bodies;
pub(crate) mod grpc;
pub(crate) mod probe;
pub(crate) mod reply;
pub(crate) mod socket;
pub(crate) mod upstream;
pub(crate) mod world;
