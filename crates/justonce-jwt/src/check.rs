//! What a token must say to count, as pure functions.

use std::time::Duration;

use justonce_core::Timestamp;
use justonce_http::TokenRefusal;
use serde_json::{Map, Value};

use crate::algorithm::Algorithm;
use crate::settings::IssuerSettings;
use crate::token::Token;

/// From when to when a token is valid, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    not_before: Option<Timestamp>,
    expires: Timestamp,
}

impl Times {
    /// What a token says; refused if it does not say until when it is valid.
    fn of(claims: &Map<String, Value>) -> Result<Self, TokenRefusal> {
        let expires = moment(claims, "exp")?.ok_or(TokenRefusal::Expired)?;
        Ok(Self { not_before: moment(claims, "nbf")?, expires })
    }

    /// Whether it is valid now, by clocks that differ by this much at most.
    pub(crate) fn check(&self, now: Timestamp, leeway: Duration) -> Result<(), TokenRefusal> {
        if now >= self.expires.after(leeway) {
            return Err(TokenRefusal::Expired);
        }
        if self.not_before.is_some_and(|begin| now.after(leeway) < begin) {
            return Err(TokenRefusal::NotYetValid);
        }
        Ok(())
    }
}

/// Checks everything but the signature; returns its algorithm and its times. That comes first: what
/// is refused anyway costs neither a signature nor a fetch of keys.
pub(crate) fn check(
    token: &Token<'_>,
    issuer: &IssuerSettings,
    now: Timestamp,
) -> Result<(Algorithm, Times), TokenRefusal> {
    let algorithm = Algorithm::from_name(&token.header.alg);
    let algorithm = algorithm.filter(|algorithm| issuer.algorithms.contains(algorithm));
    let algorithm = algorithm.ok_or(TokenRefusal::Algorithm)?;
    if token.header.crit.is_some() {
        return Err(TokenRefusal::Critical);
    }
    if token.claims.get("iss").and_then(Value::as_str) != Some(issuer.issuer.as_str()) {
        return Err(TokenRefusal::Issuer);
    }
    if !issuer.audience.is_empty() && !is_for(&token.claims, &issuer.audience) {
        return Err(TokenRefusal::Audience);
    }
    let times = Times::of(&token.claims)?;
    times.check(now, issuer.leeway)?;
    Ok((algorithm, times))
}

fn is_for(claims: &Map<String, Value>, audience: &[String]) -> bool {
    let is_one =
        |value: &Value| value.as_str().is_some_and(|one| audience.iter().any(|a| a == one));
    match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().any(is_one),
        Some(one) => is_one(one),
        None => false,
    }
}

/// A moment in seconds, perhaps with a fraction (RFC 7519, section 2).
fn moment(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, TokenRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    if let Some(seconds) = value.as_u64() {
        return Ok(Some(Timestamp::from_millis(seconds.saturating_mul(1000))));
    }
    let seconds = value.as_f64().ok_or(TokenRefusal::Malformed)?;
    // What cannot be a duration lies before 1970, or beyond all times.
    let since = match Duration::try_from_secs_f64(seconds) {
        Ok(since) => since,
        Err(_) if seconds > 0.0 => Duration::MAX,
        Err(_) => Duration::ZERO,
    };
    Ok(Some(Timestamp::ZERO.after(since)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::KeySource;
    use crate::token::Header;

    const NOW: u64 = 1_700_000_000;

    fn issuer() -> IssuerSettings {
        let audience = vec!["shop".to_owned(), "bank".to_owned()];
        let keys = KeySource::File("keys.json".into());
        IssuerSettings::new("login", "https://a", audience, keys)
    }

    fn claims() -> Value {
        json!({ "iss": "https://a", "aud": "shop", "exp": NOW + 60 })
    }

    fn result(header: &Value, claims: &Value, issuer: &IssuerSettings) -> Option<TokenRefusal> {
        let header: Header = serde_json::from_value(header.clone()).unwrap();
        let claims = claims.as_object().cloned().unwrap();
        let token = Token { header, claims, signed: b"", signature: Vec::new() };
        check(&token, issuer, Timestamp::from_millis(NOW * 1000)).err()
    }

    fn with(name: &str, value: Value) -> Option<TokenRefusal> {
        let mut changed = claims();
        changed[name] = value;
        result(&json!({ "alg": "ES256" }), &changed, &issuer())
    }

    #[test]
    fn h43_issuer_and_audience_must_be_those_that_are_trusted() {
        assert_eq!(with("sub", json!("alice")), None);
        for wrong in [json!("https://b"), json!("https://A"), json!(["https://a"]), json!(null)] {
            assert_eq!(with("iss", wrong.clone()), Some(TokenRefusal::Issuer), "{wrong}");
        }
        assert_eq!(with("aud", json!(["x", "bank"])), None);
        for wrong in
            [json!("x"), json!("Shop"), json!([]), json!(["x"]), json!([["shop"]]), json!(7)]
        {
            assert_eq!(with("aud", wrong.clone()), Some(TokenRefusal::Audience), "{wrong}");
        }
        let any = IssuerSettings { audience: Vec::new(), ..issuer() };
        let other = json!({ "iss": "https://a", "exp": NOW + 60 });
        assert_eq!(result(&json!({ "alg": "ES256" }), &other, &any), None);
        let refusal = result(&json!({ "alg": "ES256" }), &other, &issuer());
        assert_eq!(refusal, Some(TokenRefusal::Audience));
    }

    #[test]
    fn h43_a_token_counts_from_its_begin_to_its_end() {
        for (exp, refusal) in [
            (json!(NOW - 29), None),
            (json!(NOW - 30), Some(TokenRefusal::Expired)),
            (json!(NOW as f64 - 29.5), None),
            (json!(0), Some(TokenRefusal::Expired)),
            (json!(-1), Some(TokenRefusal::Expired)),
            (json!(-1e300), Some(TokenRefusal::Expired)),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!("1800000000"), Some(TokenRefusal::Malformed)),
            (json!(null), Some(TokenRefusal::Malformed)),
        ] {
            assert_eq!(with("exp", exp.clone()), refusal, "{exp}");
        }
        let endless = json!({ "iss": "https://a", "aud": "shop" });
        let refusal = result(&json!({ "alg": "ES256" }), &endless, &issuer());
        assert_eq!(refusal, Some(TokenRefusal::Expired));
        assert_eq!(with("nbf", json!(NOW + 30)), None);
        assert_eq!(with("nbf", json!(NOW + 31)), Some(TokenRefusal::NotYetValid));
        assert_eq!(with("nbf", json!("soon")), Some(TokenRefusal::Malformed));
    }

    #[test]
    fn h43_only_permitted_algorithms_and_no_extensions() {
        let of = |header: Value| result(&header, &claims(), &issuer());
        for wrong in ["none", "None", "", "HS256", "HS512", "es256", "ES512", "RSA-OAEP"] {
            assert_eq!(of(json!({ "alg": wrong })), Some(TokenRefusal::Algorithm), "{wrong}");
        }
        let only = IssuerSettings { algorithms: vec![Algorithm::Rs256], ..issuer() };
        let refusal = result(&json!({ "alg": "ES256" }), &claims(), &only);
        assert_eq!(refusal, Some(TokenRefusal::Algorithm));
        for crit in [json!(["exp"]), json!([]), json!("b64"), json!({})] {
            let refusal = of(json!({ "alg": "ES256", "crit": crit }));
            assert_eq!(refusal, Some(TokenRefusal::Critical), "{crit}");
        }
    }
}
