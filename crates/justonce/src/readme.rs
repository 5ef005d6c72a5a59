//! The examples of the README and of the guides, so that they compile.

#[doc = include_str!("../../../README.md")]
mod readme {}

#[cfg(all(feature = "saga", feature = "postgres", feature = "embedded"))]
#[doc = include_str!("../../../docs/sagas.md")]
mod sagas {}

#[cfg(feature = "saga")]
#[doc = include_str!("../../../docs/operating.md")]
mod operating {}
