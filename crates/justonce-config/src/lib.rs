//! The configuration of the gateway: a TOML file, `JUSTONCE_…` variables and flags become
//! [`Settings`].
//!
//! The sources, each stronger than the one before: declared defaults, the file, the variables, the
//! flags. All of them end up in one tree whose values know where they came from, so that every
//! message can show the place. Only [`load`] and [`variables_of_the_process`] read the process or
//! the disk.
//!
//! ```
//! use justonce_config::{self as config, KeySource};
//!
//! // The default: only the upstream is required.
//! let settings = config::parse("upstream = 'http://127.0.0.1:9000'", "justonce.toml")?;
//! assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
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
//!
//! # How to add a setting
//!
//! 1. Declare it: for routes in `settings/route.rs`, for the gateway in `settings/tables.rs`. The
//!    documentation is its row in docs/config.md, and the default is written as a variable has it:
//!
//!    ```text
//!    /// How long a client may pause while it reads.
//!    write: Duration = timeout(), default "30s", example "10s";
//!    ```
//!
//!    From this come the field of [`RouteSettings`] or [`Timeouts`], its name in the file and as a
//!    variable, its limits and their messages, what a route inherits, the reference, the
//!    [schema](json_schema) and whether a change needs a restart. Kinds of values are in `kind.rs`.
//! 2. Use the field in the server: settings of routes in `rules.rs`.
//! 3. Add it to docs/justonce.example.toml, and write the reference anew with
//!    `JUSTONCE_WRITE_FIXTURES=1 cargo test -p justonce-config`.
//!
//! What a setting must not contradict is checked by the `check` function of its table, or where the
//! route is put together; `explain` and `warnings` say what it means where that is not plain.

mod covers;
mod declare;
mod explain;
mod explain_clients;
mod explain_identity;
mod explain_upstream;
mod file;
mod flags;
mod identity;
mod invalid;
mod kind;
mod load;
mod names;
mod nearest;
mod overlay;
mod report;
mod schema;
mod section;
mod service_links;
mod settings;
mod tree;
mod units;
mod warnings;
mod warnings_identity;
mod words;

pub use explain::explain;
pub use flags::Flags;
pub use load::{load, parse, parse_with, store_url, variables_of_the_process};
pub use names::{documented_keys, variable_names};
pub use report::{ConfigError, Excerpt, Location, Mistake};
pub use schema::{Reference, json_schema, reference};
pub use settings::*;
pub use warnings::{Warning, never_reached, notes, warnings};
