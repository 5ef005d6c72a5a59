//! `GET /sagas/{id}`: one saga with what became of its steps.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use justonce::saga::SeenSaga;

use super::view;
use crate::admin::keys::{Shown, detail, find};
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::SagaDetail;

/// A saga, by the name of its record or by the beginning of it.
pub(crate) async fn show(
    State(watched): State<Arc<Watched>>,
    Path(name): Path<String>,
    shown: Result<Query<Shown>, QueryRejection>,
) -> Result<Json<SagaDetail>, Refusal> {
    let Query(shown) = shown.map_err(|error| Refusal::invalid(error.body_text()))?;
    let id = find(&watched.engine, &name).await?;
    let looked = watched.engine.look(id).await?.ok_or_else(Refusal::not_found)?;
    let seen = SeenSaga::of(&looked.stored).ok_or_else(Refusal::no_saga)?;
    let record = detail(id, &looked, shown.contents).ok_or_else(Refusal::not_found)?;
    Ok(Json(view::detail(&seen, record, shown.contents)))
}
