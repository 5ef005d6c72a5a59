//! Whom the certificate of a client names.
//!
//! A renewed certificate has the same subject and the same issuer, but another serial number and
//! often another key. So a caller is the two names. Where the subject has no common name, as in
//! certificates of workloads (SPIFFE), it names nobody alone: then the alternative names count too.

use std::fmt::Write;

use data_encoding::HEXLOWER;
use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderName};
use justonce_http::ClientCertificate;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::name::Name;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whom the first certificate of a verified chain names; nothing if there is none, or it names
/// nobody.
pub(super) fn client(chain: Option<&[CertificateDer<'_>]>) -> Option<ClientCertificate> {
    let certificate = chain?.first()?;
    let named = named(certificate);
    if named.is_none() {
        tracing::debug!("the certificate of a client names nobody");
    }
    named
}

/// Whether a request says that it was forwarded. Then the certificate is that of a proxy, and all
/// clients behind it would be one caller.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    [FORWARDED, VIA, X_FORWARDED_FOR].iter().any(|name| headers.contains_key(name))
}

fn named(certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let mut subject = text(&certificate.subject);
    if !has_common_name(&certificate.subject) {
        let mut extensions = certificate.extensions.iter().flatten();
        let found = extensions.find(|extension| extension.extn_id == ALTERNATIVE_NAMES)?;
        let names = SubjectAltName::from_der(found.extn_value.as_bytes()).ok()?;
        // Their order means nothing.
        let mut names: Vec<Vec<u8>> =
            names.0.iter().map(Encode::to_der).collect::<Result<_, _>>().ok()?;
        names.sort();
        names.dedup();
        if names.is_empty() {
            return None;
        }
        names.iter().for_each(|name| {
            // Writing to a text cannot fail.
            let _ = write!(subject, ";{}", HEXLOWER.encode(name));
        });
    }
    Some(ClientCertificate::new(text(&certificate.issuer), subject))
}

/// A name as one unambiguous text. The same letters are the same, whatever kind of text they are.
fn text(name: &Name) -> String {
    let mut text = String::new();
    for part in &name.0 {
        let mut values: Vec<String> = part.0.iter().map(value).collect();
        values.sort();
        let _ = write!(text, "/{}", values.join("+"));
    }
    text
}

fn value(of: &AttributeTypeAndValue) -> String {
    match plain(of) {
        Some(value) => format!("{}={}:{value}", of.oid, value.len()),
        None => {
            let bytes = HEXLOWER.encode(of.value.value());
            format!("{}#{}:{bytes}", of.oid, of.value.tag())
        }
    }
}

/// The letters of a value, if it is of a kind whose letters are known.
fn plain(of: &AttributeTypeAndValue) -> Option<&str> {
    let is_text = [Tag::Utf8String, Tag::PrintableString, Tag::Ia5String].contains(&of.value.tag());
    std::str::from_utf8(of.value.value()).ok().filter(|_| is_text)
}

fn has_common_name(name: &Name) -> bool {
    let mut values = name.0.iter().flat_map(|part| part.0.iter());
    values.any(|of| of.oid == COMMON_NAME && plain(of).is_none_or(|name| !name.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, Issuer, KeyPair, SanType};

    use super::*;

    fn authority(name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        Issuer::new(params, KeyPair::generate().unwrap())
    }

    fn made(
        issuer: &Issuer<'static, KeyPair>,
        names: &[(DnType, DnValue)],
        alternative: &[SanType],
    ) -> Option<ClientCertificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.subject_alt_names = alternative.to_vec();
        let made = params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap();
        client(Some(&[made.der().clone()]))
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(name: &str) -> SanType {
        SanType::URI(name.try_into().unwrap())
    }

    #[test]
    fn h42_a_renewed_certificate_is_the_same_caller() {
        let ca = authority("CA");
        let name = |text: &str| (DnType::CommonName, DnValue::Utf8String(text.to_owned()));
        let first = made(&ca, &[name("billing")], &[dns("a")]).unwrap();
        // Another key, another serial number, other alternative names, another kind of text.
        assert_eq!(made(&ca, &[name("billing")], &[dns("b")]), Some(first.clone()));
        let printable = DnValue::PrintableString("billing".try_into().unwrap());
        assert_eq!(made(&ca, &[(DnType::CommonName, printable)], &[]), Some(first.clone()));
        assert_ne!(made(&ca, &[name("Billing")], &[dns("a")]), Some(first.clone()));
        assert_ne!(made(&authority("CB"), &[name("billing")], &[dns("a")]), Some(first.clone()));
        let more = (DnType::OrganizationName, DnValue::Utf8String("x".to_owned()));
        assert_ne!(made(&ca, &[name("billing"), more], &[]), Some(first));
    }

    #[test]
    fn h42_without_a_common_name_the_alternative_names_count() {
        let ca = authority("CA");
        let one = made(&ca, &[], &[uri("spiffe://x/billing"), dns("a")]).unwrap();
        assert_eq!(made(&ca, &[], &[dns("a"), uri("spiffe://x/billing")]), Some(one.clone()));
        assert_ne!(made(&ca, &[], &[uri("spiffe://x/orders"), dns("a")]), Some(one.clone()));
        let company = (DnType::OrganizationName, DnValue::Utf8String("x".to_owned()));
        let of_company = made(&ca, std::slice::from_ref(&company), &[dns("a")]).unwrap();
        assert_ne!(of_company, one);
        assert_ne!(made(&ca, std::slice::from_ref(&company), &[dns("b")]), Some(of_company));
        assert_eq!(made(&ca, &[company], &[]), None);
        assert_eq!(made(&ca, &[], &[]), None);
        assert_eq!(client(None), None);
        assert_eq!(client(Some(&[CertificateDer::from(vec![0; 9])])), None);
    }
}
