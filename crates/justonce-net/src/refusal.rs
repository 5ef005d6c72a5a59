//! Why a server's certificate was refused.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
use rustls::Error::InvalidCertificate;

/// Why a server's certificate was refused, as far as the remedy differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateRefusal {
    /// It is for another name.
    WrongName,
    /// No trust root leads to it, or it is otherwise invalid.
    Untrusted,
}

/// Looks in an error and its causes for a refused certificate.
#[must_use]
pub fn certificate_refusal(error: &(dyn Error + 'static)) -> Option<CertificateRefusal> {
    let mut causes = std::iter::successors(Some(error), |error| cause(*error));
    match causes.find_map(|error| error.downcast_ref())? {
        InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            Some(CertificateRefusal::WrongName)
        }
        InvalidCertificate(_) => Some(CertificateRefusal::Untrusted),
        _ => None,
    }
}

/// The next error of a chain. Wrappers whose `source` skips the error that they hold are opened.
fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    type Shared = Arc<dyn Error + Send + Sync>;
    if let Some(shared) = error.downcast_ref::<Shared>() {
        return Some(&**shared);
    }
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError::UnknownIssuer;

    use super::*;

    #[test]
    fn refusals_are_found_inside_other_errors() {
        let untrusted = || InvalidCertificate(UnknownIssuer);
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(untrusted()));
        for error in [
            Box::new(untrusted()) as Box<dyn Error>,
            Box::new(io::Error::other(untrusted())),
            Box::new(io::Error::other(shared)),
        ] {
            assert_eq!(certificate_refusal(&*error), Some(CertificateRefusal::Untrusted));
        }
        let wrong_name = io::Error::other(InvalidCertificate(NotValidForName));
        assert_eq!(certificate_refusal(&wrong_name), Some(CertificateRefusal::WrongName));
        assert_eq!(certificate_refusal(&io::Error::other("reset")), None);
    }
}
