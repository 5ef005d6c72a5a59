//! The gateway with clients that we did not write: curl, those of nghttp2, the SDKs of Stripe with
//! their retries, and gRPC's own library.

mod curl;
mod grpc;
mod nghttp2;
mod relay;
mod stripe;
mod tls;
