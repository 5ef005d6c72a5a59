//! Tokens in compact form (RFC 7515), taken apart.

use data_encoding::BASE64URL_NOPAD;
use justonce_http::TokenRefusal;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// The longest token, in bytes: far more than those in use, whose headers many servers limit to
/// 8 KiB.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// A token, taken apart. Nothing in it has been verified.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    pub(crate) header: Header,
    pub(crate) claims: Map<String, Value>,
    /// What is signed.
    pub(crate) signed: &'t [u8],
    pub(crate) signature: Vec<u8>,
}

/// What counts of a token's header. Keys that it brings along, or addresses of some, do not.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    #[serde(default)]
    pub(crate) kid: Option<String>,
    /// Extensions that must be understood: none is.
    #[serde(default)]
    pub(crate) crit: Option<IgnoredAny>,
}

impl<'t> Token<'t> {
    /// Takes a token apart.
    pub(crate) fn parse(text: &'t str) -> Result<Self, TokenRefusal> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TooLong);
        }
        let malformed = TokenRefusal::Malformed;
        let (signed, signature) = text.rsplit_once('.').ok_or(malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(malformed)?;
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| malformed);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| malformed)?;
        let claims = serde_json::from_slice(&decode(payload)?).map_err(|_| malformed)?;
        let signature = decode(signature)?;
        Ok(Self { header, claims, signed: signed.as_bytes(), signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        format!("{}.{}.AAAA", part(header), part(claims))
    }

    fn refusal(text: &str) -> TokenRefusal {
        Token::parse(text).map(|token| panic!("{token:?}")).unwrap_err()
    }

    #[test]
    fn a_token_has_three_parts() {
        let good = token(r#"{"alg":"ES256","kid":"a","typ":"JWT"}"#, r#"{"sub":"alice"}"#);
        let parsed = Token::parse(&good).unwrap();
        assert_eq!((parsed.header.kid.as_deref(), parsed.signature.len()), (Some("a"), 3));
        assert_eq!(parsed.claims.get("sub").unwrap(), "alice");
        assert_eq!(parsed.signed, good.strip_suffix(".AAAA").unwrap().as_bytes());
        for wrong in ["", ".", "..", "a.b", "opaque", &format!("{good}.AAAA"), &format!("{good}=")]
        {
            assert_eq!(refusal(wrong), TokenRefusal::Malformed, "{wrong}");
        }
        for (header, claims) in [
            ("{}", "{}"),
            ("[]", "{}"),
            (r#"{"alg":1}"#, "{}"),
            (r#"{"alg":"ES256","alg":"none"}"#, "{}"),
            (r#"{"alg":"ES256","kid":7}"#, "{}"),
            (r#"{"alg":"ES256"}"#, "[]"),
            (r#"{"alg":"ES256"}"#, "alice"),
            (r#"{"alg":"ES256"}"#, "{} {}"),
        ] {
            assert_eq!(refusal(&token(header, claims)), TokenRefusal::Malformed, "{header}");
        }
        // Bits that mean nothing must be zero: one token has one spelling.
        assert_eq!(refusal(&good.replace(".AAAA", ".AAB")), TokenRefusal::Malformed);
    }

    #[test]
    fn a_long_token_is_not_read() {
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(refusal(&long), TokenRefusal::TooLong);
        let deep = token(r#"{"alg":"ES256"}"#, &"[".repeat(4096));
        assert_eq!(refusal(&deep), TokenRefusal::Malformed);
    }
}
