//! The gateway behind a certificate of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::support::process::Home;

/// A gateway that speaks TLS.
pub(crate) struct Secure {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The certificate to trust.
    pub(crate) authority: PathBuf,
}

impl Secure {
    pub(crate) fn start(home: &Home, upstream: SocketAddr) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let tls = format!("[tls]\ncert = '{}'\nkey = '{}'\n", cert.display(), key.display());
        home.configure(upstream, &tls);
        let mut command = home.command();
        // The log is for people who look into a failure.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on https://");
        let address = address.expect(&line).parse().unwrap();
        Self { child, address, authority: cert }
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
