//! Servers come and go, with a new address each time: what is kept of them goes too.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use tokio::time::{sleep, timeout};

use crate::world::{LOST_AFTER, plain, run};

/// So many replicas came, one after the other.
const CAME: usize = 100;
/// Those of the last few rounds may still be open, and those of the store itself.
const OPEN_AT_MOST: usize = 20;

/// A sentinel, and at once the replica that it names: another one whenever it is asked, as where
/// each that is started gets an address of its own.
struct Fake {
    itself: Weak<Self>,
    port: u16,
    primary: u16,
    came: AtomicUsize,
    open: AtomicUsize,
}

impl Fake {
    fn start(primary: u16) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fake = Arc::new_cyclic(|itself| {
            let itself = Weak::clone(itself);
            Self { itself, port, primary, came: AtomicUsize::new(0), open: AtomicUsize::new(0) }
        });
        fake.accept(listener);
        fake
    }

    fn accept(&self, listener: TcpListener) {
        let itself = Weak::clone(&self.itself);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(fake) = itself.upgrade() else { return };
                thread::spawn(move || {
                    fake.open.fetch_add(1, Ordering::Relaxed);
                    let _ = fake.serve(stream);
                    fake.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut heard = BufReader::new(stream.try_clone()?);
        while let Some(words) = words(&mut heard)? {
            stream.write_all(self.reply(&words).as_bytes())?;
        }
        Ok(())
    }

    fn reply(&self, words: &[String]) -> String {
        let texts = |texts: &[&str]| -> String {
            texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len())).collect()
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["HELLO", ..] => format!("%1\r\n{}", texts(&["server", "redis"])),
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => {
                format!("*2\r\n{}", texts(&["127.0.0.1", &self.primary.to_string()]))
            }
            ["SENTINEL", "REPLICAS", _] => {
                let came = self.came.fetch_add(1, Ordering::Relaxed);
                let (ip, port) =
                    (format!("127.0.{}.{}", 1 + came / 200, 1 + came % 200), self.port);
                self.accept(TcpListener::bind((ip.as_str(), port)).unwrap());
                let replica = ["ip", &ip, "port", &port.to_string(), "flags", "slave"];
                format!("*1\r\n*6\r\n{}", texts(&replica))
            }
            ["INFO", ..] => texts(&["redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n"]),
            _ => "+OK\r\n".to_owned(),
        }
    }
}

/// The words of a command; nothing if the client has gone.
fn words(heard: &mut impl BufRead) -> std::io::Result<Option<Vec<String>>> {
    let mut line = String::new();
    if heard.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = Vec::new();
    for _ in 0..line.trim().trim_start_matches('*').parse().unwrap_or(0) {
        line.clear();
        heard.read_line(&mut line)?;
        let length: usize = line.trim().trim_start_matches('$').parse().unwrap_or(0);
        let mut word = vec![0; length + 2];
        heard.read_exact(&mut word)?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
    }
    Ok(Some(words))
}

#[tokio::test]
async fn connections_to_replicas_that_are_gone_are_given_up() {
    let server = RedisServer::start().unwrap();
    let fake = Fake::start(server.port());
    let url = format!("redis-sentinel://127.0.0.1:{}/main", fake.port);
    let builder = RedisStore::builder(url).check_every(Duration::from_millis(5));
    let store = builder.open().await.unwrap();
    run(&store, &plain("a"), "done").await;
    let came = async {
        while fake.came.load(Ordering::Relaxed) < CAME {
            sleep(Duration::from_millis(5)).await; // tidy: allow-sleep: a server gives no signal
        }
    };
    timeout(LOST_AFTER, came).await.expect("nobody asks the sentinel");
    let open = fake.open.load(Ordering::Relaxed);
    assert!(open <= OPEN_AT_MOST, "{open} connections are open after {CAME} replicas");
}
