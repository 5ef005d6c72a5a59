//! The completer: drives on what nobody drives any more.

mod driver;
mod find;
mod round;
mod settings;

pub use driver::{Driver, Drove};
pub use find::{Stuck, stuck};
pub use round::{Completer, Completing, Round};
pub use settings::CompleterSettings;
