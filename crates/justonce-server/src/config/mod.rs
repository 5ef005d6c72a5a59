//! The configuration: a TOML file, `JUSTONCE_…` variables and flags become [`Settings`].
//!
//! The ways in, each stronger than the one before: built-in defaults, the file, the environment,
//! the flags. All of them end up in one tree whose values know where they came from, so that every
//! complaint can show the place. Nothing here reads the process or the disk but
//! [`load`] and [`variables_of_the_process`].
//!
//! ```
//! use justonce_server::config::{self, KeySource};
//!
//! // The default: only the upstream must be said.
//! let settings = config::parse("upstream = 'http://127.0.0.1:9000'", "justonce.toml")?;
//! assert_eq!(settings.listen.port(), 8080);
//!
//! // Customised.
//! let text = "
//!     upstream = 'http://127.0.0.1:9000'
//!     [[route]]
//!     match = 'POST /orders'
//!     key = 'json:/order/id'
//! ";
//! let settings = config::parse(text, "justonce.toml")?;
//! let key = settings.routes[0].key.as_ref().unwrap();
//! assert!(matches!(&key.source, KeySource::Json(place) if place.to_string() == "/order/id"));
//!
//! // A wrong name is refused, with the right one.
//! let error = config::parse("upstraem = 'http://127.0.0.1:9000'", "justonce.toml").unwrap_err();
//! assert!(error.to_string().contains("did you mean `upstream`?"));
//! # Ok::<(), config::ConfigError>(())
//! ```

mod complaint;
mod convert;
mod covers;
mod explain;
mod file;
mod flags;
mod links;
mod load;
mod nearest;
mod overlay;
mod probe;
mod report;
mod resolve;
mod schema;
mod section;
mod settings;
mod store;
mod tree;
mod units;
mod warnings;
mod words;

pub use explain::explain;
pub use flags::Flags;
pub use load::{load, parse, parse_with, store_url, variables_of_the_process};
pub use report::{ConfigError, Excerpt, Place, Problem};
pub use schema::{documented_keys, variable_names};
pub use settings::{
    AdminToken, BodyMode, Breaker, CompleterLimits, Fact, FingerprintRule, KeyFormat, KeySettings,
    KeySource, KeySyntax, Limits, Log, LogFormat, LogLevel, NearCacheSettings, OnStatus,
    PathEscapes, Places, PostgresSettings, ProbeHeader, ProbeOutcome, ProbeRule, ProbeSettings,
    RedisSettings, RouteSettings, ScopePart, Secret, ServerUrl, Settings, StatusRule, StatusSet,
    StoreSettings, StoreUrl, Template, Timeouts, Tls, Wanted, WhenBusy, WhenStoreDown,
};
pub use warnings::{Warning, never_reached, notes, warnings};
