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
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier};
use x509_cert::der::{Decode, Encode, Reader, SliceReader, Tag, Tagged};
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
    let Names { issuer, subject, alternative } = names(certificate)?;
    let mut subject_text = text(subject);
    if !names_somebody(subject) {
        let mut names = alternative.filter(|names| !names.is_empty())?;
        // Their order means nothing.
        names.sort();
        names.dedup();
        names.iter().for_each(|name| {
            // Writing to a text cannot fail.
            let _ = write!(subject_text, ";{}", HEXLOWER.encode(name));
        });
    }
    Some(ClientCertificate::new(text(issuer), subject_text))
}

/// What counts of a certificate. Nothing else is read: authorities write serial numbers and other
/// things that are not as they should be, TLS accepts them, and two clients of whom nothing can be
/// read would be one caller.
struct Names<'c> {
    issuer: AnyRef<'c>,
    subject: AnyRef<'c>,
    /// The alternative names as they are encoded.
    alternative: Option<Vec<Vec<u8>>>,
}

fn names(certificate: &[u8]) -> Option<Names<'_>> {
    let whole = AnyRef::from_der(certificate).ok()?;
    let signed = elements(whole)?.into_iter().next()?;
    let mut parts = elements(signed)?.into_iter().peekable();
    // The version may be missing.
    let _version = parts.next_if(|part| has_number(*part, 0));
    let (_serial, _algorithm, issuer) = (parts.next()?, parts.next()?, parts.next()?);
    let (_validity, subject) = (parts.next()?, parts.next()?);
    let extensions = parts.find(|part| has_number(*part, 3));
    Some(Names { issuer, subject, alternative: extensions.and_then(alternative_names) })
}

fn alternative_names(extensions: AnyRef<'_>) -> Option<Vec<Vec<u8>>> {
    let extensions = elements(AnyRef::from_der(extensions.value()).ok()?)?;
    let found = extensions.into_iter().find_map(|extension| {
        let parts = elements(extension)?;
        let id: ObjectIdentifier = parts.first()?.decode_as().ok()?;
        parts.last().copied().filter(|_| id == ALTERNATIVE_NAMES)
    })?;
    let names = elements(AnyRef::from_der(found.value()).ok()?)?;
    names.iter().map(|name| name.to_der().ok()).collect()
}

/// The elements of a sequence.
fn elements(of: AnyRef<'_>) -> Option<Vec<AnyRef<'_>>> {
    if of.tag() != Tag::Sequence {
        return None;
    }
    let mut reader = SliceReader::new(of.value()).ok()?;
    let mut elements = Vec::new();
    while !reader.is_finished() {
        elements.push(reader.decode().ok()?);
    }
    Some(elements)
}

fn has_number(part: AnyRef<'_>, wanted: u8) -> bool {
    matches!(part.tag(), Tag::ContextSpecific { number, .. } if number.value() == wanted)
}

/// A name as one unambiguous text. The same letters are the same, whatever kind of text they are.
fn text(of: AnyRef<'_>) -> String {
    let Some(name) = name(of) else { return format!("#{}", HEXLOWER.encode(of.value())) };
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

/// A name, if it is written as it should be.
fn name(of: AnyRef<'_>) -> Option<Name> {
    of.decode_as().ok()
}

/// Whether a subject names somebody without alternative names. One that cannot be read does.
fn names_somebody(subject: AnyRef<'_>) -> bool {
    name(subject).is_none_or(|name| has_common_name(&name))
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
        made_of(issuer, &params)
    }

    fn made_of(
        issuer: &Issuer<'static, KeyPair>,
        params: &CertificateParams,
    ) -> Option<ClientCertificate> {
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

    /// TLS accepts serial numbers that are longer than they should be.
    #[test]
    fn h42_what_does_not_name_the_client_need_not_be_right() {
        let ca = authority("CA");
        let with_serial = |name: &str, bytes: usize| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.serial_number = Some(vec![7; bytes].into());
            made_of(&ca, &params)
        };
        let alice = with_serial("alice", 16);
        assert!(alice.is_some());
        assert_eq!(with_serial("alice", 32), alice);
        assert!(with_serial("mallory", 32).is_some_and(|other| Some(other) != alice));
    }
}
