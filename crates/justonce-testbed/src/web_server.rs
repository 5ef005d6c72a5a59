//! Web servers that we did not write, in front of the gateway and behind it.

use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::port::on_free_port;
use super::{Process, ServerError, program};

/// Where Debian installs nginx.
const NGINX_PLACE: &str = "/usr/sbin";

/// A web server with an address and a directory of its own. Dropping the handle kills it.
pub struct WebServer {
    address: SocketAddr,
    process: Process,
    directory: TempDir,
}

impl WebServer {
    /// Starts a program that is given its arguments for a directory and an address, and waits until
    /// somebody listens there.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start(
        program: &Path,
        arguments: impl Fn(&Path, SocketAddr) -> Vec<OsString>,
    ) -> Result<Self, ServerError> {
        let directory = directory()?;
        let (process, address) = on_free_port(|port| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let (log, place) = (directory.path().join("log"), directory.path());
            let process = Process::start(program, &arguments(place, address), &[], &log, None)?;
            let process = process.wait_until(|| TcpStream::connect(address).is_ok())?;
            Ok((process, address))
        })?;
        Ok(Self { address, process, directory })
    }

    /// Starts nginx with one server, which has these directives beside its address, and with these
    /// outside of the server.
    ///
    /// # Errors
    ///
    /// If nginx is not installed or does not start.
    pub fn nginx(outside: &str, server: &str) -> Result<Self, ServerError> {
        let binary = program("nginx", &[Path::new(NGINX_PLACE)], "nginx-light")?;
        Self::start(&binary, |place, address| {
            let file = place.join("nginx.conf");
            // Without the file nginx complains, and that is the error.
            let _ = std::fs::write(&file, nginx_conf(place, address, outside, server));
            let errors = place.join("errors");
            vec!["-p".into(), place.into(), "-c".into(), file.into(), "-e".into(), errors.into()]
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it has written so far, to its output and its errors.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Its process, to signal or end it.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl fmt::Debug for WebServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn directory() -> Result<TempDir, ServerError> {
    let made = tempfile::Builder::new().prefix("justonce-web-").tempdir();
    made.map_err(|error| ServerError::new("no directory", &error))
}

/// One process, which ends with its handle: a worker would outlive its master.
fn nginx_conf(place: &Path, address: SocketAddr, outside: &str, server: &str) -> String {
    let place = place.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("{kind}_temp_path {place}/{kind};\n")).concat();
    format!(
        "daemon off;\nmaster_process off;\npid {place}/pid;\nevents {{ worker_connections 512; }}\n\
         http {{\naccess_log off;\n{temporary}{outside}\n\
         server {{\nlisten {address};\n{server}\n}}\n}}\n"
    )
}

/// The Python that `cargo xtask services` has made, with the packages that tests need.
#[must_use]
pub fn python() -> PathBuf {
    home().join("python/bin/python")
}

/// Where `cargo xtask services` has put the packages of Node that tests need.
#[must_use]
pub fn node_packages() -> PathBuf {
    // As `xtask/src/cache.rs` has it: other users cannot enter the home of root.
    let is_root = nix::unistd::geteuid().is_root();
    let place = if is_root { PathBuf::from("/var/cache/justonce") } else { home() };
    place.join("versions/node_modules")
}

fn home() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|cache| cache.join("justonce"));
    cache.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}
