//! Sagas on the embedded store beside Restate with a handler of the same three steps.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use justonce::EmbeddedStore;
use justonce_testbed::free_port;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::ours::{CALLERS, sagas};
use super::run::{SagaArgs, add};
use crate::gateway::Process;
use crate::load::{Candidate, candidate, in_turn, runtime};
use crate::report::{Report, median};

/// How often a new server is asked whether it is there, with a pause in between: a minute.
const ASKED_AT_MOST: u32 = 600;
/// The pause between two questions: nobody tells us when it is there.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(super) fn measure(
    args: &SagaArgs,
    server: &Path,
    handler: &Path,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let handler = Process::announced(&mut Command::new(handler))?;
    let server = Server::start(server, directory)?;
    let runtime = runtime()?;
    let rates = runtime.block_on(async {
        server.register(&handler.url).await?;
        let ours = Arc::new(EmbeddedStore::open(directory.join("beside-restate"))?);
        let candidates = [sagas(ours)?, invocations(server.ingress).await?];
        in_turn(&candidates, args.rounds, args.time()).await
    })?;
    let [ours, theirs] = <[Vec<f64>; 2]>::try_from(rates)
        .map_err(|_| anyhow::anyhow!("two candidates have two rates"))?
        .map(median);
    let what = "sagas on embedded to invocations of Restate, 2 partitions";
    add(report, what, ours, theirs, 4.0);
    Ok(())
}

/// A server of Restate on a directory of its own. It ends with this value.
struct Server {
    child: Child,
    ingress: u16,
    admin: u16,
}

impl Server {
    fn start(program: &Path, directory: &Path) -> Result<Self> {
        let (ingress, admin, node) = (free_port()?, free_port()?, free_port()?);
        let at = |port: u16| format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .arg("--base-dir")
            .arg(directory.join("restate"))
            .env("RESTATE_DEFAULT_NUM_PARTITIONS", "2")
            .env("RESTATE_INGRESS__BIND_ADDRESS", at(ingress))
            .env("RESTATE_ADMIN__BIND_ADDRESS", at(admin))
            .env("RESTATE_BIND_ADDRESS", at(node))
            .env("RESTATE_ADVERTISED_ADDRESS", format!("http://{}", at(node)))
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("RUST_LOG", "warn")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, ingress, admin })
    }

    /// Tells it of a handler, as soon as it listens, and waits until the handler is called.
    async fn register(&self, handler: &str) -> Result<()> {
        let body = format!("{{\"uri\":\"{handler}\"}}");
        let mut told = Err(anyhow::anyhow!("Restate was never asked"));
        for _ in 0..ASKED_AT_MOST {
            told = async {
                post(&mut connect(self.admin).await?, "/deployments", None, body.clone()).await?;
                let order = "/Orders/order";
                post(&mut connect(self.ingress).await?, order, None, "0".to_owned()).await
            }
            .await;
            if told.is_ok() {
                break;
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
        told.map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Invocations, each with a key of its own; each caller has a connection of its own.
async fn invocations(ingress: u16) -> Result<Candidate> {
    let mut connections = Vec::new();
    for _ in 0..CALLERS {
        connections.push(Mutex::new(connect(ingress).await?));
    }
    let connections = Arc::new(connections);
    Ok(candidate(CALLERS, move |caller, number| {
        let connections = Arc::clone(&connections);
        async move {
            let connection = connections.get(usize::try_from(caller)?).context("no connection")?;
            let key = format!("order-{caller}-{number}");
            let mut connection = connection.lock().await;
            let made =
                post(&mut connection, "/Orders/order", Some(&key), number.to_string()).await?;
            ensure!(made == (number + 3).to_string(), "Restate made {made} of {number}");
            Ok(())
        }
    }))
}

type Connection = SendRequest<Full<Bytes>>;

async fn connect(port: u16) -> Result<Connection> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request, and says what was answered if all is well.
async fn post(
    connection: &mut Connection,
    path: &str,
    key: Option<&str>,
    body: String,
) -> Result<String> {
    let mut request =
        Request::post(path).header("host", "127.0.0.1").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    connection.ready().await?;
    let response = connection.send_request(request.body(Full::new(body.into()))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    ensure!(status.is_success(), "{path}: {status} {text}");
    Ok(text)
}
