//! Outcomes of resolutions, in the form in which responses are stored.

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use justonce::http::{Rule, outcome_of};
use justonce::{MAX_BODY_BYTES, Outcome};
use justonce_admin_api::OutcomeInput;

use crate::admin::problem::Refusal;

/// What is stored and replayed. Headers that are never stored of a response are dropped.
pub(crate) fn outcome(given: &OutcomeInput) -> Result<Outcome, Refusal> {
    let body = body(given)?;
    if body.len() > MAX_BODY_BYTES {
        let detail = format!("The body of the outcome is over {MAX_BODY_BYTES} bytes.");
        return Err(Refusal::invalid(detail));
    }
    let Some(status) = given.status else {
        return without_status(given, body);
    };
    let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 200);
    let status = status.ok_or_else(|| Refusal::invalid("`status` must be 200 to 999."))?;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in &given.headers {
        let name = HeaderName::try_from(name);
        let value = HeaderValue::try_from(value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Refusal::invalid("A header of the outcome cannot be sent over HTTP."));
        };
        response.headers_mut().append(name, value);
    }
    if given.json.is_some() && !response.headers().contains_key(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let outcome = outcome_of(&response, &Rule::default());
    if outcome.body().is_none() {
        return Err(Refusal::invalid("The outcome has more headers than can be stored."));
    }
    Ok(outcome)
}

/// The outcome of an operation that did not come over HTTP: only bytes. Without any, it would be
/// replayed as an empty success.
fn without_status(given: &OutcomeInput, body: Bytes) -> Result<Outcome, Refusal> {
    if !given.headers.is_empty() {
        return Err(Refusal::invalid("An outcome with headers needs a `status`."));
    }
    if given.body.is_none() && given.json.is_none() && given.body_base64.is_none() {
        return Err(Refusal::invalid(SAYS_NOTHING));
    }
    Ok(Outcome::bytes(body))
}

const SAYS_NOTHING: &str = "The outcome says nothing. Give the response for clients: \
                            its `status`, and `body`, `json` or `body_base64`; an empty one has a \
                            `status`, as in 204.";

fn body(given: &OutcomeInput) -> Result<Bytes, Refusal> {
    match (&given.body, &given.json, &given.body_base64) {
        (None, None, None) => Ok(Bytes::new()),
        (Some(text), None, None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(json), None) => Ok(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, None, Some(base64)) => BASE64
            .decode(base64.as_bytes())
            .map(Bytes::from)
            .map_err(|_| Refusal::invalid("`body_base64` is not Base64.")),
        _ => Err(Refusal::invalid("Give one of `body`, `json` and `body_base64`, not several.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Outcome, Refusal> {
        outcome(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn outcomes_are_stored_as_responses_are() {
        let one = given(
            r#"{"status": 201, "headers": [["set-cookie", "a=1"], ["date", "now"],
                ["x-part", "1"], ["x-part", "2"], ["connection", "x-hop"], ["x-hop", "1"]],
                "json": {"id" : 17}}"#,
        )
        .unwrap();
        assert_eq!((one.status(), one.body()), (Some(201), Some(&br#"{"id" : 17}"#[..])));
        let headers: Vec<_> = one.headers().iter().map(|header| &*header.name).collect();
        assert_eq!(headers, ["x-part", "x-part", "content-type"]);
        assert_eq!(given(r#"{"status": 204}"#).unwrap().body(), Some(&b""[..]));
        assert_eq!(given(r#"{"body": "done"}"#).unwrap(), Outcome::bytes("done"));
        let bytes = given(r#"{"status": 200, "body_base64": "AP8="}"#).unwrap();
        assert_eq!(bytes.body(), Some(&[0, 255][..]));
    }

    #[test]
    fn what_could_not_be_replayed_is_refused() {
        for wrong in [
            r#"{"status": 100}"#,
            r#"{"status": 1000}"#,
            r#"{"status": 200, "headers": [["a b", "c"]]}"#,
            r#"{"status": 200, "headers": [["a", "b\r\nc: d"]]}"#,
            r#"{"headers": [["a", "b"]]}"#,
            "{}",
            r#"{"status": 200, "body": "a", "json": 1}"#,
            r#"{"status": 200, "body_base64": "?"}"#,
        ] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
        let large =
            format!("{{\"status\": 200, \"body\": \"{}\"}}", "x".repeat(MAX_BODY_BYTES + 1));
        assert!(given(&large).is_err());
    }
}
