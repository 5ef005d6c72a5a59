//! `GET /keys/{id}`: one record with its timeline.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use justonce::store::{Cursor, ListQuery};
use justonce::{Engine, RecordId};
use serde::Deserialize;

use super::view;
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::KeyDetail;

/// The fewest digits by which a record may be named.
const MIN_DIGITS: usize = 8;
/// The digits of a whole name.
const ALL_DIGITS: usize = 64;
/// How many pages are looked at for a name that is not whole.
const MAX_LOOKS: usize = 4;

/// How much is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    /// Whether the headers and the body of the outcome are shown too.
    #[serde(default)]
    pub(crate) contents: bool,
}

/// A record, by its name or by the beginning of its name.
pub(crate) async fn show(
    State(watched): State<Arc<Watched>>,
    Path(name): Path<String>,
    shown: Result<Query<Shown>, QueryRejection>,
) -> Result<Json<KeyDetail>, Refusal> {
    let Query(shown) = shown.map_err(|error| Refusal::invalid(error.body_text()))?;
    let id = find(&watched.engine, &name).await?;
    let looked = watched.engine.look(id).await?.ok_or_else(Refusal::not_found)?;
    view::detail(id, &looked, shown.contents).map(Json).ok_or_else(Refusal::not_found)
}

/// The record of this name, which may be cut as long as only one begins so.
pub(crate) async fn find(engine: &Engine, name: &str) -> Result<RecordId, Refusal> {
    if let Some(id) = RecordId::parse(name) {
        return Ok(id);
    }
    let name = name.to_ascii_lowercase();
    let is_hex = name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = RecordId::parse(&format!("{name:0<ALL_DIGITS$}"));
    let Some(first) = first.filter(|_| is_hex && name.len() >= MIN_DIGITS) else {
        let detail = format!(
            "A record is named by {ALL_DIGITS} hexadecimal digits, or by at least the first \
             {MIN_DIGITS} of them."
        );
        return Err(Refusal::invalid(detail));
    };
    // Records are listed in the order of their names, so those that begin so come first.
    let mut query = ListQuery { limit: 2, after: Cursor::before(first), ..ListQuery::default() };
    let mut found = Vec::new();
    for _ in 0..MAX_LOOKS {
        let page = engine.store().list(&query).await?;
        let begins = |id: &RecordId| id.to_string().starts_with(&name);
        let behind = page.records.iter().any(|one| !begins(&one.id));
        found.extend(page.records.iter().map(|one| one.id).filter(begins));
        if behind || found.len() > 1 || page.next.is_none() {
            break;
        }
        query.after = page.next;
    }
    match found.as_slice() {
        [] => Err(Refusal::not_found()),
        [id] => Ok(*id),
        _ => Err(Refusal::invalid("Several records begin so. Give more digits.")),
    }
}
