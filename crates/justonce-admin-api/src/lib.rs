//! The admin API of the gateway: the types of its requests and responses, the codes of its
//! problems, and a client (feature `client`).
//!
//! The server's handlers, the command line and every other client use these types, so that each is
//! declared once.
//!
//! ```
//! use justonce_admin_api::{KeyPage, ResolveRequest};
//!
//! let page: KeyPage = serde_json::from_str(r#"{"keys": [], "next": null}"#)?;
//! assert!(page.keys.is_empty());
//!
//! let request = ResolveRequest {
//!     fence: 1,
//!     by: "ann".to_owned(),
//!     why: "not in the ledger".to_owned(),
//!     outcome: None,
//! };
//! let json = serde_json::to_string(&request)?;
//! assert_eq!(json, r#"{"fence":1,"by":"ann","why":"not in the ledger"}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

#[cfg(feature = "client")]
mod backup;
mod change;
#[cfg(feature = "client")]
mod client;
mod health;
mod keys;
mod outcome;
mod problem;
mod sagas;

#[cfg(feature = "client")]
pub use backup::BackupStream;
pub use change::{
    CallbackRequest, CallbackResult, Removal, RemoveRequest, RemoveResponse, Resolution,
    ResolveRequest, ResolveResponse,
};
#[cfg(feature = "client")]
pub use client::{ApiResponse, ApiResult, Client, ClientError};
pub use health::Readiness;
pub use keys::{
    CheckpointDetail, ClaimDetail, KeyDetail, KeyFilter, KeyPage, KeyRow, ShowQuery, TimelineNote,
    UnknownDetail,
};
pub use outcome::{OutcomeDetail, OutcomeInput};
pub use problem::{CODES, Problem};
pub use sagas::{
    FailedStep, RetryRequest, RetryResponse, SagaDetail, SagaFilter, SagaPage, SagaRow, StepRow,
};
