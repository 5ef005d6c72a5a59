//! From the tree to settings: what values mean, what is left out, what contradicts what.

mod address;
mod complete;
mod gateway;
mod key;
mod layer;
mod policy;
mod probe;
mod route;
mod routes;
mod store;
mod values;

pub(super) use gateway::settings;
