//! The clients' side of an order service: `POST /orders` under a key.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use clap::Args;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use justonce::Key;
use justonce::http::headers::REPLAYED;
use justonce::saga::{Completer, CompleterSettings, Round};
use tokio::net::TcpListener;

use crate::call::KEY;
use crate::order::{Order, Reply};
use crate::serve::serve;
use crate::stage::Stage;

/// How an order service works.
#[derive(Clone, Copy, Debug, Args)]
pub struct Settings {
    /// How long an order waits for its owner after a crash
    #[arg(long, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = humantime::parse_duration)]
    pub lease: Duration,
    /// How often to look for orders that nobody drives any more; never, without it
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = humantime::parse_duration)]
    pub complete_every: Option<Duration>,
}

impl Settings {
    /// The completer's part of it.
    #[must_use]
    pub fn completer(&self) -> CompleterSettings {
        CompleterSettings {
            every: self.complete_every.unwrap_or(Duration::MAX),
            // Owners renew at a third of their lease: whoever was silent for longer may be dead.
            unchanged_for: self.lease / 2,
            ..CompleterSettings::default()
        }
    }
}

/// What becomes of a client's request.
#[derive(Clone, Debug)]
pub enum Taken {
    /// The order has ended.
    Answered {
        /// How.
        reply: Reply,
        /// Whether it had ended before.
        replayed: bool,
    },
    /// The key was used for another order.
    Mismatch,
    /// It has not ended yet, for this reason; the client may ask again.
    Later(String),
}

/// Takes orders.
pub trait Takes: Send + Sync + 'static {
    /// Takes an order, or goes on with it, or says how it ended.
    fn take(&self, key: Key, order: Order) -> impl Future<Output = anyhow::Result<Taken>> + Send;

    /// Who finishes orders whose owner died.
    ///
    /// # Errors
    ///
    /// If there can be none.
    fn completer(&self, settings: &Settings) -> anyhow::Result<Completer>;
}

/// Runs an order service until the process ends.
///
/// # Errors
///
/// If it cannot go on.
pub async fn run<T: Takes>(
    orders: T,
    listener: TcpListener,
    settings: &Settings,
    stage: Stage,
) -> anyhow::Result<()> {
    let completer = settings.complete_every.map(|_| orders.completer(settings)).transpose()?;
    let _completing = completer.map(|completer| completer.start(|round| tell(&round)));
    let state = (Arc::new(orders), stage);
    let app = Router::new().route("/orders", post(take::<T>)).with_state(state);
    Ok(serve(listener, app, |_, _| false).await?)
}

fn tell(round: &Round) {
    if round.ended > 0 {
        println!("completer: {} ended", round.ended);
    }
    round.troubles.iter().for_each(|trouble| eprintln!("completer: {trouble}"));
}

/// A client that leaves drops this; the order stays as it is saved, for the completer or for the
/// client's retry.
async fn take<T: Takes>(
    State((orders, stage)): State<(Arc<T>, Stage)>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    let key = headers.get(KEY).and_then(|key| key.to_str().ok()).map(Key::client);
    let Some(Ok(key)) = key else {
        return (StatusCode::BAD_REQUEST, "an Idempotency-Key is needed").into_response();
    };
    let taken = orders.take(key, order).await;
    stage.reached("before the reply").await;
    match taken {
        Ok(Taken::Answered { reply, replayed }) => {
            let status = match reply {
                Reply::Done { .. } => StatusCode::CREATED,
                Reply::RolledBack { .. } => StatusCode::CONFLICT,
            };
            let mut response = (status, Json(reply)).into_response();
            if replayed {
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            }
            response
        }
        Ok(Taken::Mismatch) => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        Ok(Taken::Later(why)) => later(why),
        Err(error) => {
            eprintln!("an order cannot go on: {error:#}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn later(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], why).into_response()
}
