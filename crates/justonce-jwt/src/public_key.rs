//! Public keys, and the signatures that they verify.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::{Map, Value};

use crate::algorithm::Algorithm;

/// The least and the most bytes of an RSA modulus: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// What precedes the coordinates of a point that is written whole.
const UNCOMPRESSED: u8 = 4;

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// The key that a JWK is; nothing if it is none of ours.
    pub(crate) fn of(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name)?.as_str();
        let bytes = |name: &str| BASE64URL_NOPAD.decode(text(name)?.as_bytes()).ok();
        match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (modulus, exponent) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
                let fits = RSA_BYTES.contains(&modulus.len()) && (1..=8).contains(&exponent.len());
                fits.then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => point(bytes("x")?, bytes("y")?, 32).map(Self::P256),
            ("EC", Some("P-384")) => point(bytes("x")?, bytes("y")?, 48).map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes("x").filter(|key| key.len() == 32).map(Self::Ed25519),
            _ => None,
        }
    }

    /// Whether a signature over a message is of this key by this algorithm. With an algorithm for
    /// other keys it is not.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let whole = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (Self::Rsa { modulus, exponent }, algorithm) => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
                    Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return false,
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).is_ok()
            }
            (Self::P256(key), Algorithm::Es256) => whole(&ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), Algorithm::Es384) => whole(&ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), Algorithm::EdDsa) => whole(&ED25519, key),
            _ => false,
        }
    }
}

/// A number as the library wants it.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

/// A point on a curve, from coordinates of so many bytes.
fn point(x: Vec<u8>, y: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    if x.len() != length || y.len() != length {
        return None;
    }
    Some([vec![UNCOMPRESSED], x, y].concat())
}
