//! Unknown operations of the gateway's routes: their service is asked what became of them, as the
//! configuration says.

mod ask;
mod facts;
mod judge;
mod probers;

pub(crate) use probers::Probers;
