//! The claims of tokens that identify callers, and the port by which tokens are verified.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use justonce_core::JsonPointer;
use serde_json::{Map, Value};

/// The longest name of a claim in a scope, in bytes: far more than any that is used.
const MAX_NAME_BYTES: usize = 256;

/// A claim of a token, by its name or by a JSON pointer to it.
///
/// ```
/// use justonce_http::{Claim, Rule, ScopePart};
///
/// // Any text that does not begin with a slash is a name.
/// let subject = Claim::parse("sub")?;
/// let namespaced = Claim::parse("https://example.com/tenant")?;
/// // A text that begins with one is a pointer (RFC 6901): a claim within another.
/// let nested = Claim::parse("/act/sub")?;
///
/// let orders = Rule::default().scope(vec![ScopePart::Claim(subject)]);
/// # Ok::<(), justonce_http::ClaimError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim(Box<str>);

/// Why a text names no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// It is empty, or longer than 256 bytes.
    Length,
    /// It begins with a slash and is no JSON pointer.
    Pointer,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the name of a claim has 1 to 256 bytes",
            Self::Pointer => "it begins with a slash and is no JSON pointer",
        })
    }
}

impl std::error::Error for ClaimError {}

impl Claim {
    /// Reads a name or a pointer.
    ///
    /// # Errors
    ///
    /// If it is empty, too long, or begins with a slash and is no JSON pointer.
    pub fn parse(text: &str) -> Result<Self, ClaimError> {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return Err(ClaimError::Length);
        }
        if text.starts_with('/') && JsonPointer::parse(text).is_err() {
            return Err(ClaimError::Pointer);
        }
        Ok(Self(text.into()))
    }

    /// As it was read.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn find<'c>(&self, claims: &'c Map<String, Value>) -> Option<&'c Value> {
        let Some(path) = self.0.strip_prefix('/') else { return claims.get(&*self.0) };
        let (first, rest) = path.split_once('/').map_or((path, None), |(a, b)| (a, Some(b)));
        let value = claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
        rest.map_or(Some(value), |rest| value.pointer(&format!("/{rest}")))
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The claims of a token that was verified: its signature, its issuer, its audience and its times.
///
/// They arrive in one of two ways. A [`TokenVerifier`] that the layer was given is asked for them
/// where a route has a [`ScopePart::Claim`](crate::ScopePart::Claim). An application that verifies
/// tokens itself inserts them as an extension of the request, in front of the layer; they are used
/// if the layer has no verifier:
///
/// ```
/// use http::Request;
/// use justonce_http::VerifiedClaims;
/// use serde_json::json;
///
/// # fn verified() -> serde_json::Map<String, serde_json::Value> {
/// #     json!({ "sub": "alice" }).as_object().cloned().unwrap()
/// # }
/// let mut request = Request::post("/payments").body(()).unwrap();
/// let claims = VerifiedClaims::new("https://login.example.com", verified());
/// request.extensions_mut().insert(claims);
/// ```
#[derive(Clone, PartialEq)]
pub struct VerifiedClaims(Arc<Inner>);

#[derive(PartialEq)]
struct Inner {
    issuer: Box<str>,
    claims: Map<String, Value>,
}

impl VerifiedClaims {
    /// What a verified token of this issuer says. Never make this from a token that was not
    /// verified.
    #[must_use]
    pub fn new(issuer: impl Into<Box<str>>, claims: Map<String, Value>) -> Self {
        Self(Arc::new(Inner { issuer: issuer.into(), claims }))
    }

    /// Who has issued the token.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// All claims.
    #[must_use]
    pub fn claims(&self) -> &Map<String, Value> {
        &self.0.claims
    }

    /// What stands for the caller in a scope: the issuer, the claim and its value as one
    /// unambiguous text. Nothing if the claim is missing, blank, or no text or whole number:
    /// lists and objects may come in another order with the next token.
    pub(crate) fn identity(&self, claim: &Claim) -> Option<String> {
        let value = claim.find(&self.0.claims)?;
        match value {
            Value::String(text) if !text.trim().is_empty() => {}
            Value::Number(number) if number.is_u64() || number.is_i64() => {}
            _ => return None,
        }
        // JSON tells the text "1" from the number 1, and where each part ends.
        serde_json::to_string(&(self.issuer(), claim.as_str(), value)).ok()
    }
}

impl fmt::Debug for VerifiedClaims {
    /// Without the claims: they are personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedClaims").field("issuer", &self.0.issuer).finish_non_exhaustive()
    }
}

/// Verifies the tokens of requests, for routes with a
/// [`ScopePart::Claim`](crate::ScopePart::Claim).
///
/// The layer asks for each request that has a key, before it claims anything. An implementation
/// checks the signature, the issuer, the audience and the times, or refuses the token.
pub trait TokenVerifier: Send + Sync + 'static {
    /// Verifies the token in these headers.
    fn verify<'a>(&'a self, headers: &'a HeaderMap) -> Verification<'a>;
}

/// The result of a verification: mostly at once, without a future.
#[expect(missing_debug_implementations, reason = "it holds a future")]
pub enum Verification<'a> {
    /// It is known.
    Done(Result<VerifiedClaims, TokenRefusal>),
    /// Something has to be waited for, such as the keys of the issuer.
    Pending(PendingVerification<'a>),
}

/// A verification that waits for something.
pub type PendingVerification<'a> =
    Pin<Box<dyn Future<Output = Result<VerifiedClaims, TokenRefusal>> + Send + 'a>>;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident $label:literal $words:literal;)*) => {
        /// Why a token does not identify its caller.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TokenRefusal {
            $($(#[$doc])* $name,)*
            /// Nobody can say now: there are no keys to verify it with. For as long as this.
            Unavailable(Duration),
        }

        impl TokenRefusal {
            /// The name of each in metrics.
            pub(crate) const LABELS: &'static [&'static str] = &[$($label,)* UNAVAILABLE];

            /// Its name in metrics, and in responses.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $label,)* Self::Unavailable(_) => UNAVAILABLE }
            }

            /// It as a sentence for the caller.
            pub(crate) const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                    Self::Unavailable(_) => "The token cannot be verified now.",
                }
            }
        }
    };
}

const UNAVAILABLE: &str = "unavailable";

refusals! {
    /// There is none.
    Missing "missing" "The request has no token.";
    /// There is more than one.
    Ambiguous "ambiguous" "The request has more than one token.";
    /// It is no token in compact form.
    Malformed "malformed" "The token is not a signed JWT in compact form.";
    /// It is longer than any honest one.
    TooLong "too_long" "The token is too long.";
    /// It is signed in a way that is not accepted here, or not at all.
    Algorithm "algorithm" "The token is not signed with an algorithm that is accepted here.";
    /// It demands the understanding of an extension.
    Critical "critical" "The token needs an extension that is not understood here.";
    /// Its issuer is not one that is trusted.
    Issuer "issuer" "The issuer of the token is not trusted here.";
    /// It is signed with a key that is none of the issuer's.
    Key "key" "The token is not signed with a key of its issuer.";
    /// The signature is wrong.
    Signature "signature" "The signature of the token is wrong.";
    /// It is for somebody else.
    Audience "audience" "The token is for another audience.";
    /// Its time is over, or it does not say until when it is valid.
    Expired "expired" "The token has expired, or does not say when it expires.";
    /// Its time has not come.
    NotYetValid "not_yet_valid" "The token is not valid yet.";
    /// It lacks the claim that identifies callers here, or that is no text.
    Claim "claim" "The token lacks the claim that identifies callers here.";
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verified(claims: &Value) -> VerifiedClaims {
        VerifiedClaims::new("https://a", claims.as_object().cloned().unwrap())
    }

    fn identity(claims: &Value, claim: &str) -> Option<String> {
        verified(claims).identity(&Claim::parse(claim).unwrap())
    }

    #[test]
    fn a_claim_is_a_name_or_a_pointer() {
        let claims = json!({
            "sub": "alice", "https://x/t": "acme", "act": { "sub": "bob", "a/b": "c" }, "": "e",
        });
        let value = |claim: &str| {
            let text = identity(&claims, claim)?;
            let parts: (String, String, Value) = serde_json::from_str(&text).unwrap();
            assert_eq!((parts.0.as_str(), parts.1.as_str()), ("https://a", claim));
            Some(parts.2)
        };
        assert_eq!(value("sub"), Some("alice".into()));
        assert_eq!(value("/sub"), Some("alice".into()));
        assert_eq!(value("https://x/t"), Some("acme".into()));
        assert_eq!(value("/act/sub"), Some("bob".into()));
        assert_eq!(value("/act/a~1b"), Some("c".into()));
        assert_eq!(value("/"), Some("e".into()));
        for none in ["act", "act/sub", "/act", "/act/x", "/sub/x", "x"] {
            assert_eq!(value(none), None, "{none}");
        }
        assert_eq!(Claim::parse(""), Err(ClaimError::Length));
        assert_eq!(Claim::parse(&"x".repeat(257)), Err(ClaimError::Length));
        assert_eq!(Claim::parse("/~2"), Err(ClaimError::Pointer));
    }

    #[test]
    fn only_texts_and_whole_numbers_identify() {
        for none in [json!(null), json!(""), json!(" "), json!(true), json!(1.5), json!(["a"])] {
            assert_eq!(identity(&json!({ "c": none }), "c"), None, "{none}");
        }
        assert_ne!(identity(&json!({ "c": 1 }), "c"), identity(&json!({ "c": "1" }), "c"));
        assert!(identity(&json!({ "c": -1 }), "c").is_some());
    }

    #[test]
    fn two_issuers_and_two_claims_are_two_identities() {
        let claims = json!({ "sub": "alice", "email": "alice" });
        let other = VerifiedClaims::new("https://b", claims.as_object().cloned().unwrap());
        let sub = Claim::parse("sub").unwrap();
        assert_ne!(other.identity(&sub), verified(&claims).identity(&sub));
        assert_ne!(identity(&claims, "sub"), identity(&claims, "email"));
        assert!(!format!("{other:?}").contains("alice"));
    }
}
