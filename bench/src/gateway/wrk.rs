//! The load: wrk, with few threads, so that the servers get most of the machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// GET.
    Get,
    /// POST, always with the same key.
    Duplicates,
    /// POST, each with a key of its own.
    FirstTime,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Requests a second.
    pub(crate) rate: f64,
    /// The time that 99 of 100 requests stayed below.
    pub(crate) p99: Duration,
}

/// Without a function `request` wrk puts a request together once and repeats it.
const SCRIPT: &str = r#"
local kind, name = "KIND", "NAME"
wrk.headers["Authorization"] = "Bearer sk_bench"
if kind == "get" then
  wrk.path = "/payments/1"
else
  wrk.method, wrk.path, wrk.body = "POST", "/payments", 'BODY'
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Idempotency-Key"] = name .. "-0"
end
if kind == "first" then
  local threads, n = 0, 0
  function setup(thread)
    threads = threads + 1
    thread:set("number", threads)
  end
  function request()
    n = n + 1
    wrk.headers["Idempotency-Key"] = name .. "-" .. number .. "-" .. n
    return wrk.format()
  end
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// The body of every POST.
const BODY: &str =
    r#"{"amount":5000,"currency":"eur","to":"acct_0123456789","description":"order"}"#;

/// Executes the operation whose duplicates will be asked for.
pub(crate) fn prime(url: &str, name: &str) -> Result<()> {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    let length = BODY.len();
    write!(
        stream,
        "POST /payments HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Authorization: Bearer sk_bench\r\nIdempotency-Key: {name}-0\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{BODY}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{url} answered {answer}");
    Ok(())
}

/// How much is asked at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Askers {
    /// Of wrk.
    pub(crate) threads: u32,
    /// Of all threads together.
    pub(crate) connections: u32,
}

/// Loads a server for a while.
pub(crate) fn load(
    directory: &Path,
    url: &str,
    load: Load,
    name: &str,
    askers: Askers,
    time: Duration,
) -> Result<Measured> {
    let kind = match load {
        Load::Get => "get",
        Load::Duplicates => "same",
        Load::FirstTime => "first",
    };
    let script = directory.join("load.lua");
    std::fs::write(
        &script,
        SCRIPT.replace("KIND", kind).replace("NAME", name).replace("BODY", BODY),
    )?;
    let output = Command::new("wrk")
        .args(["-t", &askers.threads.to_string(), "-c", &askers.connections.to_string()])
        .args(["-d", &format!("{}s", time.as_secs().max(1)), "--timeout", "10s", "-s"])
        .arg(&script)
        .arg(url)
        .output()
        .context("cannot start wrk: run `cargo xtask services`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let numbers: Vec<f64> = numbers
        .with_context(|| format!("wrk said: {text}{}", String::from_utf8_lossy(&output.stderr)))?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let &[requests, micros, p99, errors] = numbers.as_slice() else {
        anyhow::bail!("wrk said: {text}")
    };
    ensure!(errors == 0.0 && requests > 0.0, "{errors} of {requests} requests to {url} failed");
    Ok(Measured { rate: requests / (micros / 1e6), p99: Duration::from_secs_f64(p99 / 1e6) })
}
