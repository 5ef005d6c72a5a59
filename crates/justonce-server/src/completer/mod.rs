//! Operations whose gateway died are driven on without their callers: the request that was stored
//! with the claim is sent to the upstream again, by the same rules as every request.

mod completers;
mod driver;

pub(crate) use completers::Completers;
