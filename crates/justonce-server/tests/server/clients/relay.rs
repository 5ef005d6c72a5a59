//! A line between a client and the gateway that can lose answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A relay on an address of its own.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    /// Relays everything, but of the first `lost` connections it loses the answers: the request
    /// arrives, the answer comes back as far as here, and the connection breaks.
    pub(crate) fn losing(lost: usize, gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::spawn(move || relay(&client, gateway, number <= lost));
            }
        });
        Self { address, connections }
    }

    /// How often the client has connected.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn relay(client: &TcpStream, gateway: SocketAddr, loses: bool) {
    let gateway = TcpStream::connect(gateway).unwrap();
    let (from, to) = (client.try_clone().unwrap(), gateway.try_clone().unwrap());
    std::thread::spawn(move || copy(&from, &to));
    if loses {
        // The answer has arrived, so the operation is over.
        let _ = (&gateway).read(&mut [0; 1]);
        let _ = client.shutdown(Shutdown::Both);
        let _ = gateway.shutdown(Shutdown::Both);
    } else {
        copy(&gateway, client);
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if buffer.get(..count).is_none_or(|bytes| to.write_all(bytes).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
