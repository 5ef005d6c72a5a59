//! What the property tests draw: histories of steps, stored records, JSON texts.

pub(crate) mod json;
pub(crate) mod settings;
pub(crate) mod steps;
pub(crate) mod stored;
