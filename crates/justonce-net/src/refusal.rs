//! Why a certificate was refused: a server's, or our own.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::AlertDescription;
use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
use rustls::Error::{AlertReceived, InvalidCertificate};

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

/// Whether an error says that the server refused our certificate, or that there was none: an alert
/// that ends the server's side of the handshake. Our side may have ended before, so that data was
/// sent; the server's program cannot have read any of it.
#[must_use]
pub fn refused_our_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| cause(*error));
    causes.any(|error| {
        matches!(
            error.downcast_ref(),
            Some(AlertReceived(
                AlertDescription::BadCertificate
                    | AlertDescription::UnsupportedCertificate
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::UnknownCA
                    | AlertDescription::AccessDenied
                    // Of a handshake only: a record that cannot be decrypted has another alert.
                    | AlertDescription::DecryptError
                    | AlertDescription::CertificateRequired
            ))
        )
    })
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

    #[test]
    fn an_alert_about_our_certificate_is_told_from_others() {
        let alert = |description| io::Error::other(AlertReceived(description));
        assert!(refused_our_certificate(&alert(AlertDescription::CertificateRequired)));
        assert!(refused_our_certificate(&alert(AlertDescription::UnknownCA)));
        assert!(!refused_our_certificate(&alert(AlertDescription::BadRecordMac)));
        assert!(!refused_our_certificate(&alert(AlertDescription::InternalError)));
        assert!(!refused_our_certificate(&alert(AlertDescription::CloseNotify)));
        assert!(!refused_our_certificate(&io::Error::other("reset")));
    }
}
