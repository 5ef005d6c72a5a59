//! The upstreams by their names, which of them each request goes to, and their health checks. All
//! of it is exchanged with the routes.

mod checks;
mod choice;
mod moved;
mod named;
mod settings;

pub(crate) use choice::RouteProxies;
pub(crate) use moved::moved_routes;
pub(crate) use named::{UpstreamSet, Upstreams};
pub(crate) use settings::problems;
