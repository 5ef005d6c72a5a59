//! The processes of a run: each is ended with it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A process that ends with this value.
pub(crate) struct Process {
    child: Child,
    /// Where it listens: `http://127.0.0.1:1234`.
    pub(crate) url: String,
}

impl Process {
    /// Starts a process that prints where it listens.
    pub(crate) fn announced(command: &mut Command) -> Result<Self> {
        let shown = format!("{command:?}");
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {shown}"))?;
        let out = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(out).lines();
        let url = lines.find_map(|line| {
            line.ok()?.strip_prefix("listening on ").map(|url| url.trim().to_owned())
        });
        // The rest of what it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        match url {
            Some(url) => Ok(Self { child, url }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                anyhow::bail!("{shown} did not say where it listens")
            }
        }
    }

    /// Starts nginx as a reverse proxy.
    pub(crate) fn nginx(directory: &Path, upstream: &str) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let upstream = upstream.trim_start_matches("http://");
        let file = directory.join("nginx.conf");
        std::fs::write(&file, nginx_conf(directory, port, upstream))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(directory).arg("-c").arg(&file).arg("-e").arg("stderr");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.context("cannot start nginx: run `cargo xtask services`")?;
        let process = Self { child, url: format!("http://127.0.0.1:{port}") };
        process.wait_until_it_answers()?;
        Ok(process)
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let address = self.url.trim_start_matches("http://");
        let answers = (0..200).any(|_| {
            std::thread::park_timeout(std::time::Duration::from_millis(25));
            std::net::TcpStream::connect(address).is_ok()
        });
        ensure!(answers, "{address} does not answer");
        Ok(())
    }

    /// The most memory that it ever took, in MiB.
    pub(crate) fn peak_mib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("no VmHWM")? / 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // nginx ends its workers when it is asked to, not when it is killed.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        if asked.is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn nginx_conf(directory: &Path, port: u16, upstream: &str) -> String {
    let directory = directory.display();
    format!(
        "daemon off;
worker_processes auto;
pid {directory}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 1000000000;
    upstream origin {{
        server {upstream};
        keepalive 64;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_pass http://origin;
        }}
    }}
}}
"
    )
}
