//! Every file of a store is damaged in turn.

mod directory;
mod every_file;
mod filled;
