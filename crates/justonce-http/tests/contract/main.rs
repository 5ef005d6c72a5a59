//! The HTTP contract, line by line: every test is named after the line that it proves.

mod support;

mod concurrency;
mod execution;
mod fingerprint;
mod key;
mod replay;
mod storing;
