//! `GET /keys/{id}`: one record with its timeline.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use justonce::store::{Cursor, ListQuery};
use justonce::{Engine, RecordId};
use justonce_admin_api::{KeyDetail, ShowQuery};

use super::view;
use crate::admin::problem::Refusal;
use crate::admin::server::AdminState;

/// The fewest digits of an abbreviated id.
const MIN_DIGITS: usize = 8;
/// The digits of a whole id.
const ALL_DIGITS: usize = 64;
/// How many pages of the store are read for an abbreviated id.
const MAX_STORE_PAGES: usize = 4;

/// A record, by its id or the beginning of it.
pub(crate) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    query: Result<Query<ShowQuery>, QueryRejection>,
) -> Result<Json<KeyDetail>, Refusal> {
    let Query(ShowQuery { contents }) = query?;
    let id = find(&admin.engine, &id).await?;
    let looked = admin.engine.inspect(id).await?.ok_or_else(Refusal::not_found)?;
    view::detail(id, &looked, contents).map(Json).ok_or_else(Refusal::not_found)
}

/// The id that begins so. Only one may.
pub(crate) async fn find(engine: &Engine, text: &str) -> Result<RecordId, Refusal> {
    if let Some(id) = RecordId::parse(text) {
        return Ok(id);
    }
    let text = text.to_ascii_lowercase();
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = RecordId::parse(&format!("{text:0<ALL_DIGITS$}"));
    let Some(first) = first.filter(|_| is_hex && text.len() >= MIN_DIGITS) else {
        let detail = format!(
            "A record is named by {ALL_DIGITS} hexadecimal digits, or by at least the first \
             {MIN_DIGITS} of them."
        );
        return Err(Refusal::invalid(detail));
    };
    // Records are listed in the order of their ids, so those that begin so come first.
    let mut query = ListQuery { limit: 2, after: Cursor::before(first), ..ListQuery::default() };
    let mut found = Vec::new();
    for _ in 0..MAX_STORE_PAGES {
        let page = engine.store().list(&query).await?;
        let begins = |id: &RecordId| id.to_string().starts_with(&text);
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
