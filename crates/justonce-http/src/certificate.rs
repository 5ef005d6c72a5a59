//! The certificate of a request's client.

use std::fmt;
use std::sync::Arc;

/// The certificate that a client has shown in its TLS handshake, as an extension of its requests:
/// for [`ScopePart::Certificate`](crate::ScopePart::Certificate), and for
/// [`ScopePart::Caller`](crate::ScopePart::Caller) where there is no other credential.
///
/// The gateway sets it. A service of your own sets it from the connection, after the certificate
/// was verified, and never from a header, which everybody can send. What identifies a caller must
/// stay the same when its certificate is renewed: subject and issuer do, the serial number and the
/// key do not.
///
/// ```
/// use http::Request;
/// use justonce_http::ClientCertificate;
///
/// let mut request = Request::post("/payments").body(()).unwrap();
/// let certificate = ClientCertificate::new("CN=Example CA", "CN=billing,O=Example");
/// request.extensions_mut().insert(certificate);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificate(Arc<[Box<str>; 2]>);

impl ClientCertificate {
    /// Who has issued it, and whom it names. Each is any text that differs for different names.
    #[must_use]
    pub fn new(issuer: impl Into<Box<str>>, subject: impl Into<Box<str>>) -> Self {
        Self(Arc::new([issuer.into(), subject.into()]))
    }

    /// What stands for it in a scope, as one unambiguous text.
    pub(crate) fn identity(&self) -> String {
        let [issuer, subject] = &*self.0;
        format!("{}:{issuer}{subject}", issuer.len())
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [issuer, subject] = &*self.0;
        f.debug_struct("ClientCertificate")
            .field("issuer", issuer)
            .field("subject", subject)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_issuer_ends_counts() {
        let one = ClientCertificate::new("ab", "c").identity();
        assert_ne!(one, ClientCertificate::new("a", "bc").identity());
        assert_eq!(one, ClientCertificate::new("ab", "c").identity());
    }
}
