//! What the handlers read from requests.

use axum::extract::rejection::QueryRejection;
use justonce::store::{Cursor, MAX_PAGE};
use justonce::{MAX_NOTE_TEXT_BYTES, RecordId, Scope};
use serde::de::DeserializeOwned;

use super::problem::Refusal;

/// How many rows a page has by default.
const DEFAULT_PAGE: usize = 100;

impl From<QueryRejection> for Refusal {
    fn from(error: QueryRejection) -> Self {
        Self::invalid(error.body_text())
    }
}

/// A body. The problem says where it is wrong.
pub(super) fn body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("The body: {error}.")))
}

/// The id of a record that is to be changed: an abbreviated one could become ambiguous meanwhile.
pub(super) fn whole_id(id: &str) -> Result<RecordId, Refusal> {
    let id = RecordId::parse(id);
    id.ok_or_else(|| Refusal::invalid("A change names its record by all 64 digits."))
}

/// A name or a reason that fits into the timeline.
pub(super) fn text<'t>(name: &str, text: &'t str) -> Result<&'t str, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Refusal::invalid(format!("`{name}` is empty.")));
    }
    if text.len() > MAX_NOTE_TEXT_BYTES {
        let detail = format!("`{name}` is over {MAX_NOTE_TEXT_BYTES} bytes.");
        return Err(Refusal::invalid(detail));
    }
    Ok(text)
}

/// The size of a page.
pub(super) fn limit(limit: Option<usize>) -> Result<usize, Refusal> {
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Refusal::invalid(format!("`limit` must be 1 to {MAX_PAGE}.")))
}

/// Where the previous page ended.
pub(super) fn cursor(after: Option<&str>) -> Result<Option<Cursor>, Refusal> {
    let cursor = |after| {
        let id = RecordId::parse(after).map(Cursor);
        id.ok_or_else(|| Refusal::invalid("`after` must be the `next` of a page before."))
    };
    after.map(cursor).transpose()
}

/// The scope that has these parts; none if there are none.
pub(super) fn scope<const N: usize>(
    parts: [(&str, &Option<String>); N],
) -> Result<Option<Scope>, Refusal> {
    let given = parts.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let mut given = given.peekable();
    if given.peek().is_none() {
        return Ok(None);
    }
    let scope = given.fold(Scope::builder(), |scope, (name, value)| scope.part(name, value));
    scope.build().map(Some).map_err(|error| Refusal::invalid(format!("The scope: {error}.")))
}
