//! What everything that opens connections shares: the stores in Redis and PostgreSQL, and the
//! proxy. [`AddressRange`] says which addresses are meant, [`SocketAddress`] where servers listen.
//!
//! With the feature `tls`: reading certificates, [`TrustRoots`], and what a refused certificate
//! means.

mod address;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod identity;
mod range;
#[cfg(feature = "tls")]
mod refusal;
#[cfg(feature = "tls")]
mod roots;
mod socket_address;

pub use address::{TLS_NOT_BUILT_IN, is_loopback_host};
#[cfg(feature = "tls")]
pub use certificates::{CertificateFileError, read_certificates};
#[cfg(feature = "tls")]
pub use identity::ClientIdentity;
pub use range::{AddressRange, AddressRangeError};
#[cfg(feature = "tls")]
pub use refusal::{CertificateRefusal, certificate_refusal, refused_our_certificate};
#[cfg(feature = "tls")]
pub use roots::{TrustRoots, install_crypto_provider};
pub use socket_address::{MAX_UNIX_PATH_BYTES, SocketAddress, UnixPathError};
