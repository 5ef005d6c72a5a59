//! The HTTP contract, line by line: every test is named after the line that it proves.

mod support;

mod concurrency;
mod execution;
mod fingerprint;
mod key;
mod leaving;
mod lookup;
mod replay;
mod storing;
mod streams;
mod trouble;
