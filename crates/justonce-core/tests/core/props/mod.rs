//! Properties of what is drawn at random.

mod codec;
mod keys;
mod transition;
