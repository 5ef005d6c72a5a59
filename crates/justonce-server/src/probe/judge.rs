//! What a response means. Pure: whatever is not certain is asked again.

use http::StatusCode;
use justonce::Canonical;
use justonce::engine::Unresolved;

use super::facts;
use crate::config::{Expected, ProbeRule, ProbeSettings, StatusSet};

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Happened,
    DidNotHappen,
    Unclear,
}

/// What a response means by the rules of a route. One that means both means nothing.
pub(super) fn judge(
    probe: &ProbeSettings,
    about: &Unresolved,
    status: StatusCode,
    body: &[u8],
) -> Meaning {
    let json = Canonical::of(body);
    let fits = |rules: &[ProbeRule]| rules.iter().any(|rule| fits(rule, about, status, &json));
    match (fits(&probe.happened), fits(&probe.did_not_happen)) {
        (true, false) => Meaning::Happened,
        (false, true) => Meaning::DidNotHappen,
        (true, true) | (false, false) => Meaning::Unclear,
    }
}

fn fits(rule: &ProbeRule, about: &Unresolved, status: StatusCode, json: &Canonical<'_>) -> bool {
    let right_status = match rule.status {
        StatusSet::Class(class) => status.as_u16() / 100 == class,
        StatusSet::Code(code) => status.as_u16() == code,
    };
    right_status
        && rule.places.iter().all(|(place, expected)| {
            place.find(json).is_some_and(|found| match expected {
                Expected::Anything => true,
                Expected::Json(json) => found == json,
                Expected::Fact(fact) => is_fact(found, facts::fact(about, *fact)),
            })
        })
}

/// Whether JSON is this text, or this number.
fn is_fact(found: &str, fact: Option<String>) -> bool {
    fact.is_some_and(|fact| {
        serde_json::from_str::<serde_json::Value>(found).is_ok_and(|found| match found {
            serde_json::Value::String(text) => text == fact,
            serde_json::Value::Number(number) => number.to_string() == fact,
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::about;
    use super::*;
    use crate::config;

    fn probe(rules: &str) -> ProbeSettings {
        let text = format!(
            "upstream = 'http://127.0.0.1:9000'\n[defaults.probe]\n\
             request = 'GET /a?r={{record}}'\n{rules}"
        );
        config::parse(&text, "a.toml").unwrap().default_route.probe.unwrap()
    }

    fn means(probe: &ProbeSettings, status: u16, body: &str) -> Meaning {
        judge(probe, &about("k"), StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn only_what_is_certain_counts() {
        let probe = probe(
            "happened = ['200 /status=paid', '200 /data/0/ok=true /data/0/n=1.50']\n\
             did_not_happen = ['404 /code=no_such_payment', '200 /data=[]']",
        );
        for (status, body, meaning) in [
            (200, r#"{"status": "paid"}"#, Meaning::Happened),
            (200, r#"{"data": [{"ok": true, "n": 1.5}]}"#, Meaning::Happened),
            (404, r#"{"code": "no_such_payment"}"#, Meaning::DidNotHappen),
            (200, r#"{"data": [ ]}"#, Meaning::DidNotHappen),
            (404, "Not Found", Meaning::Unclear),
            (404, "", Meaning::Unclear),
            (200, r#"{"status": "pending"}"#, Meaning::Unclear),
            (200, r#"{"status": "paid""#, Meaning::Unclear),
            (200, r#"{"status": ["paid"]}"#, Meaning::Unclear),
            (200, r#"{"data": [{"ok": true}]}"#, Meaning::Unclear),
            (201, r#"{"status": "paid"}"#, Meaning::Unclear),
            (500, r#"{"status": "paid"}"#, Meaning::Unclear),
            (200, r#"{"status": "paid", "data": []}"#, Meaning::Unclear),
        ] {
            assert_eq!(means(&probe, status, body), meaning, "{status} {body}");
        }
    }

    #[test]
    fn classes_presence_and_facts() {
        let probe = probe("happened = ['2xx /id /key={key} /fence={fence}']");
        let right = r#"{"id": null, "key": "k", "fence": 7}"#;
        assert_eq!(means(&probe, 299, right), Meaning::Happened);
        assert_eq!(means(&probe, 200, r#"{"id": 1, "key": "k", "fence": "7"}"#), Meaning::Happened);
        assert_eq!(means(&probe, 200, r#"{"id": 1, "key": "K", "fence": 7}"#), Meaning::Unclear);
        assert_eq!(means(&probe, 200, r#"{"key": "k", "fence": 7}"#), Meaning::Unclear);
    }
}
