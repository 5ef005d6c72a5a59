//! The public keys of an issuer: a JWK Set (RFC 7517).

use serde_json::{Map, Value};
use thiserror::Error;

use crate::algorithm::Algorithm;
use crate::public_key::PublicKey;

/// The longest document with keys, in bytes: those of large issuers have a tenth of it.
pub const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// The most keys of an issuer: a token that names none is tried with each.
pub const MAX_KEYS: usize = 32;

/// The public keys of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: Option<Box<str>>,
    /// The only algorithm that it is for, if it says one.
    algorithm: Option<Algorithm>,
    key: PublicKey,
}

/// Why a document has no keys that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// It is too long.
    #[error("it has more than {MAX_DOCUMENT_BYTES} bytes")]
    TooLong,
    /// It is something else.
    #[error("it is no JSON object with a list `keys` (a JWK Set, RFC 7517)")]
    NoKeySet,
    /// No key in it verifies signatures of a known kind.
    #[error("none of its keys can verify a signature: RSA from 2048 bits, P-256, P-384, Ed25519")]
    NoUsableKey,
    /// There are too many.
    #[error("it has more than {MAX_KEYS} keys")]
    TooMany,
}

/// The result of looking for the key of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    /// By one of the keys.
    ByKey,
    /// Not by the key that the token names.
    Wrongly,
    /// By none of the keys; perhaps by a newer one.
    ByUnknownKey,
}

impl KeySet {
    /// Reads a document. Keys that cannot be used are left out, as RFC 7517 says: shared secrets,
    /// keys for encryption, and kinds that are not known.
    ///
    /// # Errors
    ///
    /// If it is no key set, or none of its keys can be used, or it has too many.
    pub fn parse(document: &[u8]) -> Result<Self, KeySetError> {
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(KeySetError::TooLong);
        }
        let read: Option<Value> = serde_json::from_slice(document).ok();
        let listed = read.as_ref().and_then(|set| set.get("keys")?.as_array());
        let listed = listed.ok_or(KeySetError::NoKeySet)?;
        let keys: Vec<Key> = listed.iter().filter_map(|jwk| key(jwk.as_object()?)).collect();
        match keys.len() {
            0 => Err(KeySetError::NoUsableKey),
            1..=MAX_KEYS => Ok(Self(keys)),
            _ => Err(KeySetError::TooMany),
        }
    }

    /// How many keys there are; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a message is signed by the key with this name, or by any if the token names none.
    pub(crate) fn check(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Signed {
        // A key without a name may be the one that is meant.
        let is_named = |key: &&Key| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        let is_for = |key: &&Key| key.algorithm.is_none_or(|own| own == algorithm);
        let mut candidates = self.0.iter().filter(is_named).filter(is_for);
        if candidates.any(|key| key.key.verifies(algorithm, message, signature)) {
            return Signed::ByKey;
        }
        let is_known = id.is_some() && self.0.iter().any(|key| key.id.as_deref() == id);
        if is_known { Signed::Wrongly } else { Signed::ByUnknownKey }
    }
}

/// A key for signatures; nothing if it is for something else, or not of a known kind.
fn key(jwk: &Map<String, Value>) -> Option<Key> {
    if jwk.get("use").is_some_and(|of| of != "sig") {
        return None;
    }
    let operations = jwk
        .get("key_ops")
        .map(|of| of.as_array().is_some_and(|of| of.iter().any(|operation| operation == "verify")));
    if operations == Some(false) {
        return None;
    }
    let algorithm = match jwk.get("alg") {
        None => None,
        Some(name) => Some(Algorithm::from_name(name.as_str()?)?),
    };
    let id = jwk.get("kid").and_then(Value::as_str).map(Into::into);
    Some(Key { id, algorithm, key: PublicKey::of(jwk)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key of RFC 8037, appendix A.2.
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn set(keys: &Value) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn what_cannot_verify_is_left_out() {
        let good = json!({ "kty": "OKP", "crv": "Ed25519", "x": X, "kid": "a" });
        let with = |name: &str, value: Value| {
            let mut other = good.clone();
            other[name] = value;
            other
        };
        assert_eq!(set(&json!([good])).unwrap().len(), 1);
        for unusable in [
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("HS256")),
            with("alg", json!("none")),
            with("x", json!("AAAA")),
            with("crv", json!("X25519")),
            json!({ "kty": "oct", "k": X }),
            json!({ "kty": "RSA", "n": X, "e": "AQAB" }),
            json!({ "kty": "EC", "crv": "P-256", "x": X, "y": "AAAA" }),
            json!("a key"),
            json!(null),
        ] {
            assert_eq!(set(&json!([unusable])), Err(KeySetError::NoUsableKey), "{unusable}");
            assert_eq!(set(&json!([unusable, good])).unwrap().len(), 1);
        }
        let ops = with("key_ops", json!(["verify"]));
        assert_eq!(set(&json!([ops, with("alg", json!("EdDSA"))])).unwrap().len(), 2);
    }

    #[test]
    fn a_document_is_bounded() {
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "x": X });
        assert!(set(&json!(vec![&key; MAX_KEYS])).is_ok());
        assert_eq!(set(&json!(vec![&key; MAX_KEYS + 1])), Err(KeySetError::TooMany));
        let long = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        assert_eq!(KeySet::parse(&long), Err(KeySetError::TooLong));
        for other in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>", "\u{0}"] {
            assert_eq!(KeySet::parse(other.as_bytes()), Err(KeySetError::NoKeySet), "{other}");
        }
        let deep = "[".repeat(MAX_DOCUMENT_BYTES);
        assert_eq!(KeySet::parse(deep.as_bytes()), Err(KeySetError::NoKeySet));
    }
}
