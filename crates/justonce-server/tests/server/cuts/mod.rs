//! The line between the gateway and a service is cut at every byte of a request and of a response,
//! by an end and by a reset, on new connections and on used ones. Each case must end as *not
//! executed*, *stored* or *unknown*, and the ledger of the service must agree.

mod every_byte;
mod judge;
mod lane;
mod line;
mod series;
mod service;
