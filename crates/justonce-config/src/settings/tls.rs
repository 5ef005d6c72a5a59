//! `[tls]`: the certificate that clients are shown, and those that they show.

use std::path::PathBuf;

use crate::declare::settings;
use crate::kind::{choice, custom, optional, path};
use crate::report::Report;
use crate::section::Section;
use crate::tree::Origin;

settings! {
    /// TLS for clients.
    layer TlsLayer {
        /// The certificate and its chain, a PEM file; without it, cleartext.
        cert: PathBuf = custom(path), example "/etc/justonce/cert.pem", live;
        /// Its private key, a PEM file.
        key: PathBuf = custom(path), example "/etc/justonce/key.pem", live;
        /// Certificates (PEM) that those of clients are trusted by; without it, clients are not
        /// asked for one ([more](operating.md#certificates-of-clients)).
        client_ca: Option<PathBuf> = optional(custom(path)),
            example "/etc/justonce/clients-ca.pem", live;
        /// What becomes of a client without a certificate: `optional` lets it connect, `required`
        /// does not. One that shows a certificate that is not trusted cannot connect.
        client_cert: bool = choice(&[("optional", false), ("required", true)]),
            default "optional", example "required", live;
    }
}

/// The gateway's own certificate, and those of its clients. All are PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, and those between it and a root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// What clients show; nothing if they are not asked.
    pub clients: Option<ClientCertificates>,
}

/// The certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// What they are trusted by.
    pub ca: PathBuf,
    /// Whether each client needs one.
    pub is_required: bool,
}

/// The certificates of the settings. What is wrong is reported.
pub(super) fn tls(root: &Section<'_>, tls: &TlsLayer, report: &mut Report) -> Option<Tls> {
    let table = root.inside("tls");
    let ca = tls.client_ca.as_ref().and_then(|ca| ca.value.clone());
    let is_required = tls.client_cert.as_ref().is_some_and(|required| required.value);
    if ca.is_none() && is_required && table.node("client_ca").is_none() {
        let message = "`tls.client_cert` belongs to `tls.client_ca`, which is not set";
        report.at(&table.origin("client_cert"), message.to_owned(), None);
    }
    let mut incomplete = |origin: &Origin, missing: &str| {
        let message = format!("`tls` has no `{missing}`: a certificate and its key go together");
        report.at(origin, message, None);
    };
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let clients = ca.map(|ca| ClientCertificates { ca, is_required });
            return Some(Tls { cert: cert.value.clone(), key: key.value.clone(), clients });
        }
        (Some(cert), None) if table.node("key").is_none() => incomplete(&cert.origin, "key"),
        (None, Some(key)) if table.node("cert").is_none() => incomplete(&key.origin, "cert"),
        (None, None) if table.node("cert").is_none() => {
            let is_empty = root.node("tls").is_some() && table.members().next().is_none();
            if is_empty || ca.is_some() {
                incomplete(&root.origin("tls"), "cert");
            }
        }
        _ => {}
    }
    None
}
