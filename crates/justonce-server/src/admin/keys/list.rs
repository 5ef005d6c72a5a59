//! `GET /keys`: a page of records.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use justonce::store::{Cursor, ListQuery, Summary};
use justonce::{Key, RecordId, StateName};
use justonce_admin_api::{KeyFilter, KeyPage};

use super::view;
use crate::admin::problem::Refusal;
use crate::admin::request::{cursor, limit, scope};
use crate::admin::server::AdminState;

/// How many pages of the store one request reads: keys are compared after the store has listed
/// them.
const MAX_STORE_PAGES: usize = 20;

/// One page of the records that the filter selects, in the order of their ids.
pub(crate) async fn list(
    State(admin): State<Arc<AdminState>>,
    filter: Result<Query<KeyFilter>, QueryRejection>,
) -> Result<Json<KeyPage>, Refusal> {
    let Query(filter) = filter?;
    let mut query = query(&filter)?;
    let limit = query.limit;
    let mut found: Vec<Summary> = Vec::new();
    let mut damaged: Vec<RecordId> = Vec::new();
    for _ in 0..MAX_STORE_PAGES {
        query.limit = limit - found.len();
        let page = admin.engine.store().list(&query).await?;
        found.extend(page.records.into_iter().filter(|one| has_key(&filter, one.key.as_ref())));
        damaged.extend(page.damaged);
        query.after = page.next;
        if query.after.is_none() || found.len() >= limit {
            break;
        }
    }
    Ok(Json(KeyPage {
        keys: found.iter().map(view::row).collect(),
        next: query.after.map(|Cursor(id)| id.to_string()),
        damaged: damaged.iter().map(RecordId::to_string).collect(),
    }))
}

/// What of the filter the store checks.
fn query(filter: &KeyFilter) -> Result<ListQuery, Refusal> {
    Ok(ListQuery {
        state: filter.state.as_deref().map(state).transpose()?,
        scope: scope([
            ("tenant", &filter.tenant),
            ("route", &filter.route),
            ("operation", &filter.operation),
        ])?,
        unchanged_for: filter.unchanged_for.as_deref().map(age).transpose()?,
        limit: limit(filter.limit)?,
        after: cursor(filter.after.as_deref())?,
        only: None,
    })
}

/// Whether the key is one that the filter selects. Tombstones have no key.
fn has_key(filter: &KeyFilter, key: Option<&Key>) -> bool {
    let fits = |wanted: &Option<String>, is: fn(&str, &str) -> bool| {
        wanted.as_deref().is_none_or(|wanted| key.is_some_and(|key| is(key.as_str(), wanted)))
    };
    fits(&filter.prefix, |key, wanted| key.starts_with(wanted))
        && fits(&filter.text, |key, wanted| key.contains(wanted))
}

fn state(name: &str) -> Result<StateName, Refusal> {
    StateName::parse(name).filter(|state| *state != StateName::Absent).ok_or_else(|| {
        let names = StateName::ALL.iter().filter(|state| **state != StateName::Absent);
        let names: Vec<_> = names.map(|state| state.as_str()).collect();
        Refusal::invalid(format!("`state` must be one of {}.", names.join(", ")))
    })
}

fn age(text: &str) -> Result<std::time::Duration, Refusal> {
    humantime::parse_duration(text)
        .map_err(|_| Refusal::invalid("`unchanged_for` must be a duration, as in 1h."))
}
