//! Limits per caller: how much one caller may begin, run and have stored on a route.
//!
//! They are about new operations. What a caller has used is kept in memory, in a table of fixed
//! size.

mod rate;
mod settings;
mod table;
mod usage;
mod window;

pub use rate::Rate;
pub use settings::CallerLimits;
pub(crate) use table::{Admitted, CallerId};
pub use table::{CallerUsage, DEFAULT_CALLERS};
pub(crate) use usage::{Limit, Refusal};
