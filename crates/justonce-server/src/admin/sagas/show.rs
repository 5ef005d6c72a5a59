//! `GET /sagas/{id}`: one saga with its steps.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use justonce::saga::SeenSaga;
use justonce_admin_api::{SagaDetail, ShowQuery};

use super::view;
use crate::admin::keys::{detail, find};
use crate::admin::problem::Refusal;
use crate::admin::server::AdminState;

/// A saga, by the id of its record or the beginning of it.
pub(crate) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    query: Result<Query<ShowQuery>, QueryRejection>,
) -> Result<Json<SagaDetail>, Refusal> {
    let Query(ShowQuery { contents }) = query?;
    let id = find(&admin.engine, &id).await?;
    let looked = admin.engine.inspect(id).await?.ok_or_else(Refusal::not_found)?;
    let seen = SeenSaga::of(&looked.stored).ok_or_else(Refusal::no_saga)?;
    let record = detail(id, &looked, contents).ok_or_else(Refusal::not_found)?;
    Ok(Json(view::detail(&seen, record, contents)))
}
