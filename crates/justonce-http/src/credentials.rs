//! Credentials of one caller in one spelling. Pure.
//!
//! The name of a scheme has no case (RFC 9110, section 11.1): `bearer x` is `Bearer x`. Only
//! schemes that are registered or widespread are taken for one: the first word of anything else may
//! be a secret, whose case counts.

use std::borrow::Cow;

/// The spelling of schemes that counts, as they are registered.
const SCHEMES: [&str; 17] = [
    "Bearer",
    "Basic",
    "Digest",
    "DPoP",
    "GNAP",
    "HOBA",
    "Mutual",
    "Negotiate",
    "NTLM",
    "OAuth",
    "PrivateToken",
    "SCRAM-SHA-1",
    "SCRAM-SHA-256",
    "vapid",
    "ApiKey",
    "Token",
    "AWS4-HMAC-SHA256",
];

/// The value of `Authorization` in its one spelling: the scheme as it is registered, and one space
/// behind it. What has no known scheme stays as it is.
pub(crate) fn one_spelling(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(end) = value.iter().position(|byte| *byte == b' ') else { return value.into() };
    let (scheme, rest) = value.split_at(end);
    let known = SCHEMES.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(scheme));
    let Some(known) = known.map(|known| known.as_bytes()) else { return value.into() };
    let credentials = rest.trim_ascii_start();
    // As most clients write it: nothing is copied.
    if known == scheme && rest.len() == credentials.len() + 1 {
        return value.into();
    }
    [known, b" ", credentials].concat().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(value: &str) -> String {
        String::from_utf8(one_spelling(value.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn a_scheme_has_one_spelling_and_a_secret_keeps_its_own() {
        for (sent, expected) in [
            ("Bearer x", "Bearer x"),
            ("bearer x", "Bearer x"),
            ("BEARER   xY ", "Bearer xY "),
            ("basic YTpi", "Basic YTpi"),
            ("dpop t", "DPoP t"),
            ("Vapid t=a", "vapid t=a"),
            ("aws4-hmac-sha256 Credential=A", "AWS4-HMAC-SHA256 Credential=A"),
            // No scheme: it may be a name and a password.
            ("Ann secret", "Ann secret"),
            ("ann secret", "ann secret"),
            ("sk_live_1", "sk_live_1"),
            ("bearer", "bearer"),
            ("", ""),
            (" bearer x", " bearer x"),
            ("bearer\tx", "bearer\tx"),
        ] {
            assert_eq!(one(sent), expected, "{sent:?}");
        }
    }

    proptest! {
        #[test]
        fn two_secrets_never_become_one(
            scheme in proptest::sample::select(SCHEMES.to_vec()),
            one in "[!-~]{1,12}",
            other in "[!-~]{1,12}",
            upper in any::<bool>(),
        ) {
            let written =
                if upper { scheme.to_ascii_uppercase() } else { scheme.to_ascii_lowercase() };
            let (first, second) = (format!("{scheme} {one}"), format!("{written}  {other}"));
            let equal = one_spelling(first.as_bytes()) == one_spelling(second.as_bytes());
            prop_assert_eq!(equal, one == other);
            let again = one_spelling(first.as_bytes()).into_owned();
            prop_assert_eq!(one_spelling(&again).into_owned(), again);
        }

        #[test]
        fn what_differs_in_more_than_its_scheme_stays_different(
            one in "[ -~]{0,10}",
            other in "[ -~]{0,10}",
        ) {
            let lower = |text: &str| text.to_ascii_lowercase().replace(' ', "");
            if lower(&one) != lower(&other) {
                prop_assert_ne!(one_spelling(one.as_bytes()), one_spelling(other.as_bytes()));
            }
        }
    }
}
