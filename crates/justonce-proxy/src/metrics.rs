//! The metrics of this crate.

use std::io;

use justonce_core::metrics::Metric;
use metrics::{Counter, counter};

/// Handshakes with clients.
pub const TLS_HANDSHAKES: Metric = Metric::counter(
    "justonce_tls_handshakes_total",
    &["result"],
    "TLS handshakes with clients: `done`; failed because the client showed no certificate \
     (`no_certificate`), one whose time is over or has not come (`expired_certificate`) or one \
     that is not trusted (`untrusted_certificate`), because it refused ours or broke off \
     (`alert`), spoke something else (`protocol`), went away (`closed`), or was too slow \
     (`timeout`).",
);

/// How a handshake ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    NoCertificate,
    ExpiredCertificate,
    UntrustedCertificate,
    Alert,
    Protocol,
    Closed,
    Timeout,
}

impl Handshake {
    const ALL: [Self; 8] = [
        Self::Done,
        Self::NoCertificate,
        Self::ExpiredCertificate,
        Self::UntrustedCertificate,
        Self::Alert,
        Self::Protocol,
        Self::Closed,
        Self::Timeout,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NoCertificate => "no_certificate",
            Self::ExpiredCertificate => "expired_certificate",
            Self::UntrustedCertificate => "untrusted_certificate",
            Self::Alert => "alert",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
        }
    }

    /// Why a handshake failed.
    pub(crate) fn of_error(error: &io::Error) -> Self {
        use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            None => Self::Closed,
            Some(NoCertificatesPresented) => Self::NoCertificate,
            Some(InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            )) => Self::ExpiredCertificate,
            Some(InvalidCertificate(_)) => Self::UntrustedCertificate,
            Some(AlertReceived(_)) => Self::Alert,
            Some(_) => Self::Protocol,
        }
    }
}

/// The handles of a listener with TLS, in the order of [`Handshake::ALL`].
pub(crate) struct HandshakeMeters([Counter; 8]);

impl Default for HandshakeMeters {
    fn default() -> Self {
        Self(Handshake::ALL.map(|end| counter!(TLS_HANDSHAKES.name, "result" => end.label())))
    }
}

impl HandshakeMeters {
    pub(crate) fn count(&self, end: Handshake) {
        if let Some(counter) = self.0.get(end as usize) {
            counter.increment(1);
        }
    }
}
