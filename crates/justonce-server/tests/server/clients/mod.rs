//! The gateway with clients that we did not write: curl, and the SDK of Stripe with its retries.

mod curl;
mod relay;
mod stripe;
mod tls;
