//! `GET /sagas`: a page of sagas.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use justonce::saga::{SagaState, SeenSaga};
use justonce::store::{Cursor, ListQuery, MAX_PAGE};
use justonce::{Scope, StateName};
use serde::Deserialize;

use super::view;
use crate::admin::keys::cursor;
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::SagaPage;

/// How many sagas a page has unless somebody says otherwise.
const DEFAULT_PAGE: usize = 100;
/// How many records one request looks into: a saga is told by what its record holds.
const MAX_LOOKS: usize = 1000;
/// How many records are listed at once.
const PORTION: usize = 100;

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    state: Option<String>,
    /// The name of the saga.
    saga: Option<String>,
    tenant: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// One page of the sagas that are looked for, in the order of their records' names.
pub(crate) async fn list(
    State(watched): State<Arc<Watched>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<SagaPage>, Refusal> {
    let Query(wanted) = wanted.map_err(|error| Refusal::invalid(error.body_text()))?;
    let state = wanted.state.as_deref().map(state).transpose()?;
    let limit = wanted.limit.unwrap_or(DEFAULT_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Refusal::invalid(format!("`limit` must be 1 to {MAX_PAGE}.")));
    }
    let mut query = ListQuery {
        state: state.map(kept_as),
        scope: wanted.scope()?,
        limit: PORTION,
        after: wanted.after.as_deref().map(cursor).transpose()?,
        ..ListQuery::default()
    };
    let store = watched.engine.store();
    let (mut sagas, mut looks) = (Vec::new(), 0);
    loop {
        // Never more than there is room for, so that the next page begins where this one ended.
        query.limit = PORTION.min(limit - sagas.len());
        let page = store.list(&query).await?;
        looks += page.records.len().max(1);
        for summary in &page.records {
            let stored = store.get(&summary.id).await?;
            let seen = stored.as_ref().and_then(SeenSaga::of);
            let seen = seen.filter(|seen| state.is_none_or(|wanted| wanted == seen.state));
            sagas.extend(seen.map(|seen| view::row(summary, &seen)));
        }
        query.after = page.next;
        if query.after.is_none() || sagas.len() >= limit || looks >= MAX_LOOKS {
            break;
        }
    }
    Ok(Json(SagaPage { sagas, next: query.after.map(|Cursor(id)| id.to_string()) }))
}

impl Wanted {
    fn scope(&self) -> Result<Option<Scope>, Refusal> {
        let mut builder = Scope::builder();
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant.as_str());
        }
        if let Some(saga) = &self.saga {
            builder = builder.operation(saga.as_str());
        }
        let scope = builder.build();
        let scope = scope.map_err(|error| Refusal::invalid(format!("The scope: {error}.")))?;
        Ok(Some(scope).filter(|scope| *scope != Scope::global()))
    }
}

/// The state of the record of such a saga.
const fn kept_as(state: SagaState) -> StateName {
    match state {
        SagaState::Running | SagaState::Stuck | SagaState::Parked => StateName::InProgress,
        SagaState::Done => StateName::Completed,
        SagaState::RolledBack => StateName::Failed,
    }
}

fn state(name: &str) -> Result<SagaState, Refusal> {
    SagaState::parse(name).ok_or_else(|| {
        let names = SagaState::ALL.map(SagaState::as_str);
        Refusal::invalid(format!("`state` must be one of {}.", names.join(", ")))
    })
}
