//! `cargo xtask bench gateway`: the gateway beside nginx, and the layer beside the same route
//! without it, in one run.

mod layer;
mod origin;
mod processes;
mod run;
mod wrk;

pub(crate) use layer::{LayerArgs, serve as serve_layer};
pub(crate) use origin::serve as serve_origin;
pub(crate) use processes::Process;
pub(crate) use run::{GatewayArgs, run};
pub(crate) use wrk::{Askers, Load, load, prime};
