//! Three trivial steps under Restate: the handler that its server calls. It listens on any free
//! port and says which.

use mimalloc::MiMalloc;
use restate_sdk::prelude::*;
use tokio::net::TcpListener;

/// The allocator of what it is measured beside.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

struct Orders;

#[service]
impl Orders {
    #[handler]
    async fn order(&self, context: Context<'_>, number: u64) -> Result<u64, HandlerError> {
        let reserved: u64 = context.run(|| async move { Ok(number + 1) }).name("reserve").await?;
        let charged: u64 = context.run(|| async move { Ok(reserved + 1) }).name("charge").await?;
        let shipped: u64 = context.run(|| async move { Ok(charged + 1) }).name("ship").await?;
        Ok(shipped)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    HttpServer::new(Endpoint::builder().bind(Orders).build()).serve(listener).await;
    Ok(())
}
