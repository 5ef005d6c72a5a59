//! The completer: drives on operations whose owner is gone.

mod driver;
mod known;
mod pool;
mod round;
mod search;
mod settings;
mod stuck;

pub use driver::{DriveEnd, Driver, Progress};
pub use round::{Completer, Round};
pub use settings::CompleterSettings;
pub use stuck::{Stuck, stuck};
