//! `justonce sagas`: sagas through the admin API of a gateway on the same store.

mod options;
mod print;
mod run;

pub use options::{SagaListOptions, SagaRetryOptions, SagaShowOptions, SagasCommand, SagasOptions};
pub use run::run;
