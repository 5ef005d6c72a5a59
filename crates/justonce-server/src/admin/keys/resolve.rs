//! `POST /keys/{id}/complete`, `fail` and `release`: an operator says what became of an unknown
//! operation.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::engine::Settlement;
use justonce::{Engine, Fence, MAX_NOTE_TEXT_BYTES, RecordId, Resolution, Resolve, Resolver, Why};
use serde::de::DeserializeOwned;

use super::outcome::outcome;
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
pub(crate) use crate::admin::wire::Resolved;
use crate::admin::wire::Resolving;
use crate::resolutions;

/// It took effect, and this was the answer.
pub(crate) async fn complete(
    watched: State<Arc<Watched>>,
    name: Path<String>,
    body: Bytes,
) -> Result<Json<Resolved>, Refusal> {
    by_operator(&watched, &name, &body, |given| given.map(Resolution::Complete)).await
}

/// It failed for good, and this was the answer.
pub(crate) async fn fail(
    watched: State<Arc<Watched>>,
    name: Path<String>,
    body: Bytes,
) -> Result<Json<Resolved>, Refusal> {
    by_operator(&watched, &name, &body, |given| given.map(Resolution::Fail)).await
}

/// It did not take effect and never will: the next request executes it.
pub(crate) async fn release(
    watched: State<Arc<Watched>>,
    name: Path<String>,
    body: Bytes,
) -> Result<Json<Resolved>, Refusal> {
    by_operator(&watched, &name, &body, |given| match given {
        None => Some(Resolution::Release),
        Some(_) => None,
    })
    .await
}

async fn by_operator(
    watched: &Watched,
    name: &str,
    body: &[u8],
    resolution: impl FnOnce(Option<justonce::Outcome>) -> Option<Resolution>,
) -> Result<Json<Resolved>, Refusal> {
    let said: Resolving = read(body)?;
    let given = said.outcome.as_ref().map(outcome).transpose()?;
    let had_outcome = given.is_some();
    let resolution = resolution(given).ok_or_else(|| match had_outcome {
        true => Refusal::invalid("What did not happen has no `outcome`."),
        false => Refusal::invalid("`outcome` is missing: what the client gets to hear."),
    })?;
    let resolve = Resolve {
        resolution,
        by: Resolver::operator(text("by", &said.by)?),
        why: Why::new(text("why", &said.why)?),
    };
    self::resolve(&watched.engine, name, said.fence, resolve).await.map(Json)
}

/// Resolves a record, or says why that cannot be.
pub(crate) async fn resolve(
    engine: &Engine,
    name: &str,
    fence: u64,
    resolve: Resolve,
) -> Result<Resolved, Refusal> {
    let id = RecordId::parse(name)
        .ok_or_else(|| Refusal::invalid("A resolution names its record by all 64 digits."))?;
    let (by, how) = (resolve.by.clone(), resolve.resolution.how());
    match engine.resolve(id, Fence::new(fence), resolve).await? {
        Settlement::Stored => {
            resolutions::count(&by, how);
            resolutions::tell(id, &by, how);
        }
        Settlement::Lost(lost) => {
            resolutions::count_lost(&by);
            let looked = engine.look(id).await?;
            return Err(Refusal::lost(lost, looked.map(|looked| looked.state())));
        }
    }
    let looked = engine.look(id).await?;
    let state = looked.map_or("absent", |looked| looked.state().as_str());
    Ok(Resolved {
        id: id.to_string(),
        state: state.to_owned(),
        resolved: how.as_str().to_owned(),
        by: by.name().to_owned(),
    })
}

/// Reads a body. What is wrong with it is said with its place.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("The body: {error}.")))
}

/// A name or a reason that can be kept as it is.
pub(crate) fn text<'t>(name: &str, text: &'t str) -> Result<&'t str, Refusal> {
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
