//! A proxy before PostgreSQL that stops everything at a COMMIT.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// How a simple query that commits looks on its way.
const COMMIT: &[u8] = b"COMMIT\0";

/// Where the next commit is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The server has not heard of it.
    BeforeServer,
    /// The server has answered, the client has not heard of it.
    BeforeClient,
}

/// What the proxy waits for before it closes the client's connection.
pub(crate) struct Stopped {
    reached: oneshot::Receiver<()>,
    go_on: oneshot::Sender<()>,
}

struct Plan {
    stop: Stop,
    reached: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    plan: Arc<Mutex<Option<Plan>>>,
}

impl Proxy {
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, plan: Arc::default() };
        let plan = Arc::clone(&proxy.plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, Arc::clone(&plan)));
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops the next commit.
    pub(crate) fn stop_next(&self, stop: Stop) -> Stopped {
        let (reached, hear_reached) = oneshot::channel();
        let (go_on, hear_go_on) = oneshot::channel();
        *self.plan.lock().unwrap() = Some(Plan { stop, reached, go_on: hear_go_on });
        Stopped { reached: hear_reached, go_on }
    }
}

impl Stopped {
    /// Waits for the commit, does something, and lets the proxy close the client's connection.
    pub(crate) async fn meanwhile<T>(self, work: impl FnOnce() -> T) -> T {
        self.reached.await.unwrap();
        let done = work();
        // A proxy whose client has died has nobody to close.
        let _ = self.go_on.send(());
        done
    }
}

async fn carry(mut client: TcpStream, server: u16, plan: Arc<Mutex<Option<Plan>>>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                let commits = asked[..count].windows(COMMIT.len()).any(|part| part == COMMIT);
                let planned = if commits { plan.lock().unwrap().take() } else { None };
                if let Some(plan) = planned {
                    return stop(plan, client, server, &asked[..count]).await;
                }
                if server.write_all(&asked[..count]).await.is_err() { return };
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() { return };
            }
        }
    }
}

async fn stop(plan: Plan, client: TcpStream, mut server: TcpStream, commit: &[u8]) {
    if plan.stop == Stop::BeforeClient {
        server.write_all(commit).await.unwrap();
        let mut answer = vec![0; 65536];
        assert!(server.read(&mut answer).await.unwrap() > 0);
    }
    let _ = plan.reached.send(());
    let _ = plan.go_on.await;
    drop(client);
    // The server does not notice that its client is gone: its transaction would stay open.
    let mut rest = Vec::new();
    let _ = server.read_to_end(&mut rest).await;
}
