//! The gateway with clients that we did not write: curl, the SDK of Stripe with its retries, and
//! gRPC's own library.

mod curl;
mod grpc;
mod python;
mod relay;
mod stripe;
mod tls;
