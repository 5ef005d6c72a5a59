//! What everything that opens connections shares: the stores in Redis and PostgreSQL, and the
//! proxy.
//!
//! With the feature `tls`: reading certificates, [`TrustRoots`], and what a refused certificate
//! means.

mod address;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod identity;
#[cfg(feature = "tls")]
mod refusal;
#[cfg(feature = "tls")]
mod roots;

pub use address::TLS_NOT_BUILT_IN;
#[cfg(feature = "tls")]
pub use certificates::{CertificateFileError, read_certificates};
#[cfg(feature = "tls")]
pub use identity::ClientIdentity;
#[cfg(feature = "tls")]
pub use refusal::{CertificateRefusal, certificate_refusal, refused_our_certificate};
#[cfg(feature = "tls")]
pub use roots::{TrustRoots, install_crypto_provider};
