//! The examples of the README, so that they compile.
#![doc = include_str!("../../../README.md")]
