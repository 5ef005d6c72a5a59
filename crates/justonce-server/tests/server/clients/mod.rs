//! The gateway with clients that we did not write: curl, those of nghttp2, and the SDKs of Stripe
//! with their retries.

mod curl;
mod nghttp2;
mod relay;
mod stripe;
mod tls;
