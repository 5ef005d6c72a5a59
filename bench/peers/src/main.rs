//! The crate `idempotent` around the same route as ours, on the Redis of the first argument.

use axum::Router;
use axum::routing::post;
use idempotent::middleware::IdempotencyLayer;
use idempotent::valkey::ValkeyStore;
use mimalloc::MiMalloc;
use tokio::net::TcpListener;

/// The allocator of what it is measured beside.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The answer of the route, as in our own benchmark.
const ANSWER: &[u8] = include_bytes!("../../src/gateway/answer.json");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("the address of a Redis is missing")?;
    let store = ValkeyStore::with_url(url).prefix("peer").try_build().await?;
    // Keys belong to whoever shows the same credentials, as ours do.
    let layer = IdempotencyLayer::new(store).scope(|parts| {
        let shown = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        shown.map(str::to_owned)
    });
    let app = Router::new().route("/payments", post(pay)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

async fn pay(body: bytes::Bytes) -> ([(&'static str, &'static str); 1], &'static [u8]) {
    debug_assert!(!body.is_empty(), "the benchmark sends a body");
    ([("content-type", "application/json")], ANSWER)
}
