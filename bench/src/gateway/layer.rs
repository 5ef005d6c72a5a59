//! The layer inside an axum service on the memory store, beside the same service without it.

use anyhow::Result;
use axum::Router;
use axum::routing::post;
use clap::Args;
use justonce::http::Idempotency;
use justonce::memory::MemoryStore;
use justonce::redis::RedisStore;
use justonce::store::Cached;
use justonce::{Engine, SystemClock};
use tokio::net::TcpListener;

use super::origin::{ANSWER, announce};

/// Which of the two services.
#[derive(Args)]
pub(crate) struct LayerArgs {
    /// Without the layer.
    #[arg(long)]
    plain: bool,
    /// On the Redis at this address, not in memory.
    #[arg(long)]
    redis: Option<String>,
    /// With the near cache in front of it.
    #[arg(long, requires = "redis")]
    near: bool,
}

/// Serves until killed; prints the address.
pub(crate) fn serve(args: &LayerArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut app = Router::new().route("/payments", post(pay));
        if !args.plain {
            app = app.layer(Idempotency::new(engine(args).await?));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        announce(&listener)?;
        Ok(axum::serve(listener, app).await?)
    })
}

async fn engine(args: &LayerArgs) -> Result<Engine> {
    let Some(url) = &args.redis else {
        return Ok(Engine::new(MemoryStore::new(SystemClock::new())));
    };
    let store = RedisStore::builder(url.clone()).open().await?;
    Ok(if args.near { Engine::new(Cached::near(store)) } else { Engine::new(store) })
}

async fn pay(body: bytes::Bytes) -> ([(&'static str, &'static str); 1], &'static [u8]) {
    debug_assert!(!body.is_empty(), "the benchmark sends a body");
    ([("content-type", "application/json")], ANSWER)
}
