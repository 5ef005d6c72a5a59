//! `GET /keys`: a page of records.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use justonce::store::{Cursor, ListQuery, MAX_PAGE, Summary};
use justonce::{RecordId, Scope, StateName};
use serde::Deserialize;

use super::view;
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::KeyPage;

/// How many records a page has unless somebody says otherwise.
const DEFAULT_PAGE: usize = 100;
/// How many pages of the store one request looks at: keys are looked for in what the store lists.
const MAX_LOOKS: usize = 20;

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    state: Option<String>,
    tenant: Option<String>,
    route: Option<String>,
    operation: Option<String>,
    /// What the key begins with.
    prefix: Option<String>,
    /// What the key has somewhere.
    text: Option<String>,
    /// How long a record has not changed: `1h`.
    unchanged_for: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// One page of the records that are looked for, in the order of their names.
pub(crate) async fn list(
    State(watched): State<Arc<Watched>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<KeyPage>, Refusal> {
    let Query(wanted) = wanted.map_err(|error| Refusal::invalid(error.body_text()))?;
    let mut query = wanted.query()?;
    let limit = query.limit;
    let mut found: Vec<Summary> = Vec::new();
    let mut damaged: Vec<RecordId> = Vec::new();
    for _ in 0..MAX_LOOKS {
        query.limit = limit - found.len();
        let page = watched.engine.store().list(&query).await?;
        found.extend(page.records.into_iter().filter(|one| wanted.has_key_of(one)));
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

impl Wanted {
    /// The query for the store.
    fn query(&self) -> Result<ListQuery, Refusal> {
        let limit = self.limit.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Refusal::invalid(format!("`limit` must be 1 to {MAX_PAGE}.")));
        }
        Ok(ListQuery {
            state: self.state.as_deref().map(state).transpose()?,
            scope: self.scope()?,
            unchanged_for: self.unchanged_for.as_deref().map(age).transpose()?,
            limit,
            after: self.after.as_deref().map(cursor).transpose()?,
        })
    }

    fn scope(&self) -> Result<Option<Scope>, Refusal> {
        let parts =
            [("tenant", &self.tenant), ("route", &self.route), ("operation", &self.operation)];
        let given = parts.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let mut given = given.peekable();
        if given.peek().is_none() {
            return Ok(None);
        }
        let builder = given
            .fold(Scope::builder(), |builder, (name, value)| builder.part(name, value.as_str()));
        builder.build().map(Some).map_err(|error| Refusal::invalid(format!("The scope: {error}.")))
    }

    /// Whether a record has the key that is looked for. Tombstones have none.
    fn has_key_of(&self, summary: &Summary) -> bool {
        let key = summary.key.as_ref().map(justonce::Key::as_str);
        let fits = |wanted: &Option<String>, is: fn(&str, &str) -> bool| {
            wanted.as_deref().is_none_or(|wanted| key.is_some_and(|key| is(key, wanted)))
        };
        fits(&self.prefix, |key, wanted| key.starts_with(wanted))
            && fits(&self.text, |key, wanted| key.contains(wanted))
    }
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

pub(crate) fn cursor(text: &str) -> Result<Cursor, Refusal> {
    RecordId::parse(text)
        .map(Cursor)
        .ok_or_else(|| Refusal::invalid("`after` must be the `next` of a page before."))
}
