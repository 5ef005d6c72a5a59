//! A process that works on the store is killed at random points.

mod history;
mod kills;
mod parent;
mod worker;
