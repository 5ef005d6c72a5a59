//! The clients of nghttp2: `nghttp`, which shows every frame, and `h2load`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::clients::tls::Secure;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// A whole answer takes many frames then, and many windows.
const LARGE_BYTES: usize = 900_000;

fn started(more: &str) -> (Home, Upstream, Gateway) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), more);
    let gateway = home.start();
    (home, upstream, gateway)
}

fn body(home: &Home, bytes: &[u8]) -> PathBuf {
    let file = home.path().join("body");
    std::fs::write(&file, bytes).unwrap();
    file
}

/// What a program says, and whether it ended well.
fn told(program: &str, args: &[&str]) -> (String, bool) {
    let output = Command::new(program).args(args).output();
    let output = output.expect("nghttp2-client is missing: run `cargo xtask services`");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    (out + &String::from_utf8_lossy(&output.stderr), output.status.success())
}

/// The frames of an exchange, as `nghttp` shows them.
fn frames(args: &[&str]) -> String {
    let (told, is_fine) =
        told("nghttp", &[&["--verbose", "--null-out", "--timeout=20"], args].concat());
    assert!(is_fine, "{told}");
    told
}

/// The values that a header of the answer has.
fn received<'t>(frames: &'t str, name: &str) -> Vec<&'t str> {
    let lines = frames.lines().filter(|line| line.contains("recv (stream_id="));
    lines
        .filter_map(|line| line.split_once(&format!(") {name}: ")))
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn a_retry_gets_the_same_with_padding_continuations_and_trailers() {
    let (home, upstream, gateway) = started("");
    let asked = upstream.serve();
    let file = body(&home, b"{\"amount\":5}");
    let (data, url) =
        (format!("--data={}", file.display()), format!("http://{}/p", gateway.address));
    for (number, way) in
        ["--padding=100", "--continuation", "--trailer=x-sum: 1"].iter().enumerate()
    {
        let key = format!("--header=idempotency-key: \"nghttp-{number}\"");
        let args = [way, "--header=:method: POST", &key, &data, &url];
        let (first, retry) = (frames(&args), frames(&args));
        assert_eq!(received(&first, ":status"), ["201"], "{first}");
        assert_eq!(received(&first, "idempotent-replayed"), [""; 0], "{first}");
        assert_eq!(received(&retry, ":status"), ["201"], "{retry}");
        assert_eq!(received(&retry, "idempotent-replayed"), ["true"], "{retry}");
        assert_eq!(asked.load(Ordering::SeqCst), number + 1, "{way}");
    }
    // What stands in a trailer is no key.
    let args = ["--trailer=idempotency-key: late", "--header=:method: POST", &data, &url];
    for _ in 0..2 {
        let frames = frames(&args);
        assert_eq!(received(&frames, "idempotency-status"), ["unprotected"], "{frames}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

#[test]
fn a_small_window_gets_all_of_a_large_answer() {
    let (home, upstream, gateway) = started("");
    let asked = upstream.serve();
    let file = body(&home, &[b'x'; LARGE_BYTES]);
    let (data, url) =
        (format!("--data={}", file.display()), format!("http://{}/p", gateway.address));
    let windows = ["--window-bits=10", "--connection-window-bits=12"];
    for replayed in [&[][..], &["true"]] {
        let key = ["--header=:method: POST", "--header=idempotency-key: large", &data, &url];
        let frames = frames(&[&windows[..], &key].concat());
        assert_eq!(received(&frames, ":status"), ["201"]);
        assert_eq!(received(&frames, "idempotent-replayed"), replayed);
        let data = frames.lines().filter(|line| line.contains("recv DATA frame"));
        let lengths = data.filter_map(|line| line.split_once("length=")?.1.split(',').next());
        let all: usize = lengths.map(|length| length.parse::<usize>().unwrap()).sum();
        assert_eq!(all, LARGE_BYTES);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// `h2load` says how many answers there were of each class.
fn load(url: &str, more: &[&str]) -> String {
    let args = ["--requests=3000", "--clients=8", "--max-concurrent-streams=32"];
    let (told, is_fine) = told("h2load", &[&args[..], more, &[url]].concat());
    assert!(is_fine, "{told}");
    told
}

#[test]
fn h15_three_thousand_requests_with_one_key_are_one_operation() {
    let (home, upstream, gateway) = started("");
    let asked = upstream.serve();
    let data = format!("--data={}", body(&home, b"{\"amount\":5}").display());
    let url = format!("http://{}/payments", gateway.address);
    let key = ["--header=idempotency-key: h2load", "--header=prefer: wait=20", &data];
    let told = load(&url, &key);
    assert!(told.contains("status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn unprotected_load_over_tls_reaches_the_service_each_time() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let secure = Secure::start(&home, upstream.address());
    let asked = upstream.serve();
    let told = load(&format!("https://127.0.0.1:{}/files", secure.address.port()), &[]);
    assert!(told.contains("status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{told}");
    assert!(told.contains("Application protocol: h2"), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 3000);
}
