//! Verifies the token of a request, where its route tells callers apart by claims.

use http::{Extensions, HeaderMap, HeaderValue};
use serde_json::json;

use crate::claims::{TokenRefusal, Verification, VerifiedClaims};
use crate::problem::{Problem, ProblemCode};
use crate::routes::Route;
use crate::rule::{Rule, ScopePart};
use crate::shared::Shared;

/// The verified claims of a request's token, or why they do not identify its caller.
pub(crate) async fn identified(
    shared: &Shared,
    rule: &Rule,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<VerifiedClaims, TokenRefusal> {
    let claims = match &shared.token_verifier {
        None => extensions.get::<VerifiedClaims>().cloned().ok_or(TokenRefusal::Missing)?,
        Some(verifier) => match verifier.verify(headers) {
            Verification::Done(verified) => verified?,
            Verification::Pending(pending) => pending.await?,
        },
    };
    let identifies = |part: &ScopePart| match part {
        ScopePart::Claim(claim) => claims.identity(claim).is_some(),
        _ => true,
    };
    if rule.scope.iter().all(identifies) { Ok(claims) } else { Err(TokenRefusal::Claim) }
}

/// The problem of a request whose token does not identify its caller, counted and logged.
pub(crate) fn refused(route: &Route, refusal: TokenRefusal) -> Problem {
    route.meters.count_refused_credentials(refusal);
    let (route, reason) = (&*route.name, refusal.as_str());
    tracing::info!(target: "justonce::request", route, reason, "a token identifies no caller");
    problem(refusal)
}

fn problem(refusal: TokenRefusal) -> Problem {
    if let TokenRefusal::Unavailable(time) = refusal {
        return Problem::new(ProblemCode::IdentityUnavailable, UNAVAILABLE).retry_after(time);
    }
    let words = refusal.words();
    let detail = format!("{words} Nothing was executed. {REMEDY}");
    Problem::new(ProblemCode::CredentialsInvalid, detail)
        .with("reason", json!(refusal.as_str()))
        .authenticate(challenge(refusal))
}

/// `WWW-Authenticate` as RFC 6750 has it: without a token, no error.
fn challenge(refusal: TokenRefusal) -> HeaderValue {
    if refusal == TokenRefusal::Missing {
        return HeaderValue::from_static("Bearer");
    }
    let description = refusal.words().trim_end_matches('.');
    let text = format!("Bearer error=\"invalid_token\", error_description=\"{description}\"");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Bearer"))
}

const REMEDY: &str = "Repeat the request with a valid token and the same key.";
const UNAVAILABLE: &str = "The operation was not executed, because it cannot be verified who sends \
                           it. Try again later with the same key.";
