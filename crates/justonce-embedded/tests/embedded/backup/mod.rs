//! Backups of a store in use, checks, and stores that are restored from backups.

mod bounded;
mod checked;
mod killed;
mod lost;
mod no_room;
mod refused;
mod round_trip;
mod under_load;
mod unreadable_parent;
