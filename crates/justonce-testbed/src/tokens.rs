//! Tokens (JWT) as an issuer signs them, and as somebody forges them.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
};
use serde_json::{Value, json};

use super::ServerError;

/// An RSA key for tests: making one takes long.
const RSA: &[u8] = include_bytes!("../data/rsa.der");

/// A key of an issuer, which signs tokens.
///
/// ```
/// use justonce_testbed::{SigningKey, TokenAlgorithm, jwks};
/// use serde_json::json;
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// let key = SigningKey::new("2026-11", TokenAlgorithm::Es256)?;
/// let token = key.token(&json!({ "iss": "https://login", "sub": "alice", "exp": 4e9 }));
/// assert_eq!(token.split('.').count(), 3);
/// assert!(jwks(&[&key]).contains("2026-11"));
/// # Ok(())
/// # }
/// ```
pub struct SigningKey {
    id: String,
    algorithm: TokenAlgorithm,
    pair: Pair,
}

/// How a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum TokenAlgorithm {
    Es256,
    Es384,
    EdDsa,
    Rs256,
    Ps256,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl TokenAlgorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Es256, Self::Es384, Self::EdDsa, Self::Rs256, Self::Ps256];

    /// Its name in the header of a token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
        }
    }
}

impl SigningKey {
    /// A new key with this name. All for RSA are the same key.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn new(id: &str, algorithm: TokenAlgorithm) -> Result<Self, ServerError> {
        let random = SystemRandom::new();
        let failed = |why: &dyn fmt::Display| ServerError::new("no key for tokens", why);
        let ecdsa = |of| {
            let document = EcdsaKeyPair::generate_pkcs8(of, &random).map_err(|e| failed(&e))?;
            let pair = EcdsaKeyPair::from_pkcs8(of, document.as_ref(), &random);
            pair.map(Pair::Ecdsa).map_err(|e| failed(&e))
        };
        let pair = match algorithm {
            TokenAlgorithm::Es256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
            TokenAlgorithm::Es384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)?,
            TokenAlgorithm::EdDsa => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(|e| failed(&e))?;
                let pair = Ed25519KeyPair::from_pkcs8(document.as_ref());
                Pair::Ed25519(pair.map_err(|e| failed(&e))?)
            }
            TokenAlgorithm::Rs256 | TokenAlgorithm::Ps256 => {
                Pair::Rsa(RsaKeyPair::from_pkcs8(RSA).map_err(|e| failed(&e))?)
            }
        };
        Ok(Self { id: id.to_owned(), algorithm, pair })
    }

    /// Its public part, as a JWK.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let mut jwk = match &self.pair {
            Pair::Ecdsa(pair) => {
                let point = pair.public_key().as_ref();
                let coordinates = point.get(1..).unwrap_or_default();
                let (x, y) = coordinates.split_at(coordinates.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "x": encode(x), "y": encode(y) })
            }
            Pair::Ed25519(pair) => {
                let x = encode(pair.public_key().as_ref());
                json!({ "kty": "OKP", "crv": "Ed25519", "x": x })
            }
            Pair::Rsa(pair) => {
                let parts = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": encode(&parts.n), "e": encode(&parts.e) })
            }
        };
        if let Some(members) = jwk.as_object_mut() {
            members.insert("kid".into(), self.id.as_str().into());
            members.insert("alg".into(), self.algorithm.as_str().into());
            members.insert("use".into(), "sig".into());
        }
        jwk
    }

    /// A token with these claims, whose header names this key.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({ "typ": "JWT", "alg": self.algorithm.as_str(), "kid": self.id });
        self.token_with(&header, claims)
    }

    /// A token with this header, whatever it says.
    #[must_use]
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Ecdsa(pair) => {
                pair.sign(&random, message).map_or_else(|_| Vec::new(), |s| s.as_ref().to_vec())
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let made = match self.algorithm {
                    TokenAlgorithm::Ps256 => {
                        pair.sign(&RSA_PSS_SHA256, &random, message, &mut signature)
                    }
                    _ => pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature),
                };
                made.map_or_else(|_| Vec::new(), |()| signature)
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// What a token has before its signature.
#[must_use]
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

/// The public keys of an issuer, as a JWK Set.
#[must_use]
pub fn jwks(keys: &[&SigningKey]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json!({ "keys": keys }).to_string()
}
