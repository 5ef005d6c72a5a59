//! Many gateways on one store, and everything that can happen to that store: real servers are
//! killed, paused, replaced and cut off under load. A ledger counts every effect, clients ask until
//! they know, and at the end a checker reads every request, effect and reply.

mod client;
mod clocks;
mod connections;
mod failover;
mod fenced;
mod identical;
mod killed;
mod ledger;
mod load;
mod paused;
mod stage;
mod store;
