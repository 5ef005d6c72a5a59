//! `GET /sagas`: a page of sagas.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use justonce::StateName;
use justonce::saga::{SagaState, SeenSaga};
use justonce::store::{Cursor, ListQuery};
use justonce_admin_api::{SagaFilter, SagaPage};

use super::view;
use crate::admin::problem::Refusal;
use crate::admin::request::{cursor, limit, scope};
use crate::admin::server::AdminState;

/// How many records one request reads: only its contents show that a record is a saga.
const MAX_RECORDS: usize = 1000;
/// How many records are listed at once.
const STORE_PAGE: usize = 100;

/// One page of the sagas that the filter selects, in the order of their records' ids.
pub(crate) async fn list(
    State(admin): State<Arc<AdminState>>,
    filter: Result<Query<SagaFilter>, QueryRejection>,
) -> Result<Json<SagaPage>, Refusal> {
    let Query(filter) = filter?;
    let state = filter.state.as_deref().map(state).transpose()?;
    let limit = limit(filter.limit)?;
    let mut query = ListQuery {
        state: state.map(record_state),
        scope: scope([("tenant", &filter.tenant), ("operation", &filter.saga)])?,
        after: cursor(filter.after.as_deref())?,
        ..ListQuery::default()
    };
    let store = admin.engine.store();
    let (mut sagas, mut read) = (Vec::new(), 0);
    loop {
        // Never more than the page has room for: the next page begins where this one ended.
        query.limit = STORE_PAGE.min(limit - sagas.len());
        let page = store.list(&query).await?;
        read += page.records.len().max(1);
        for summary in &page.records {
            let stored = store.get(&summary.id).await?;
            let seen = stored.as_ref().and_then(SeenSaga::of);
            let seen = seen.filter(|seen| state.is_none_or(|wanted| wanted == seen.state));
            sagas.extend(seen.map(|seen| view::row(summary, &seen)));
        }
        query.after = page.next;
        if query.after.is_none() || sagas.len() >= limit || read >= MAX_RECORDS {
            break;
        }
    }
    Ok(Json(SagaPage { sagas, next: query.after.map(|Cursor(id)| id.to_string()) }))
}

/// The state of the record of such a saga.
const fn record_state(state: SagaState) -> StateName {
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
