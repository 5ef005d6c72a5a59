//! The completer: drives on what nobody drives any more.

mod driver;
mod find;
mod known;
mod look;
mod pool;
mod round;
mod settings;

pub use driver::{Driver, Drove, Progress};
pub use find::{Stuck, stuck};
pub use round::{Completer, Completing, Round};
pub use settings::CompleterSettings;
