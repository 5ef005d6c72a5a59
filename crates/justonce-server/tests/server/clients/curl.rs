//! curl, as people use it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

use crate::clients::tls::Secure;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// A body that is no text in any encoding, and has what a careless copy would change.
const BODY: &[u8] = b"\x00\x01\xff\xfe\r\n\r\n0\r\n\r\n{\"amount\": 5}\n\x80";
/// What people upload.
const LARGE_BYTES: usize = 20 * 1024 * 1024;

/// What curl says.
#[derive(Debug)]
struct Told {
    status: u16,
    version: String,
    /// All heads, also of `100 Continue`.
    heads: String,
    body: Vec<u8>,
    /// What curl itself ended with.
    exit: i32,
}

impl Told {
    fn has(&self, line: &str) -> bool {
        self.heads.to_ascii_lowercase().lines().any(|head| head.trim_end() == line)
    }

    fn is_replay(&self) -> bool {
        self.has("idempotent-replayed: true")
    }
}

/// A place for what curl sends and gets.
struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs curl. The variables of this machine's own network are not for the loopback.
    fn curl(&self, args: &[&str]) -> Told {
        let body = tempfile::NamedTempFile::new_in(self.directory.path()).unwrap();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "30"])
            .args(["--dump-header", "-", "--write-out", "\n%{http_code} %{http_version}"])
            .arg("--output")
            .arg(body.path())
            .args(args)
            .output()
            .expect("curl is missing: run `cargo xtask services`");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let (heads, last) = out.rsplit_once('\n').unwrap();
        let (status, version) = last.split_once(' ').unwrap();
        Told {
            status: status.parse().unwrap(),
            version: version.to_owned(),
            heads: heads.to_owned(),
            body: std::fs::read(body.path()).unwrap_or_default(),
            exit: output.status.code().unwrap(),
        }
    }
}

fn started(more: &str) -> (Home, Upstream, Gateway, Desk) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), more);
    let gateway = home.start();
    (home, upstream, gateway, Desk::new())
}

/// The option that makes curl speak this version without asking.
const VERSIONS: [(&str, &str); 2] = [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")];

#[test]
fn a_retry_gets_the_same_bytes() {
    let (_home, upstream, gateway, desk) = started("");
    let asked = upstream.serve();
    let url = format!("http://{}/payments", gateway.address);
    let body = format!("@{}", desk.file("body", BODY).display());
    for (number, (option, version)) in VERSIONS.into_iter().enumerate() {
        let key = format!("Idempotency-Key: \"curl-{version}\"");
        let args = [option, "--data-binary", &body, "-H", &key, &url];
        let (first, retry) = (desk.curl(&args), desk.curl(&args));
        assert_eq!((first.status, first.version.as_str()), (201, version), "{first:?}");
        assert_eq!((retry.status, retry.version.as_str()), (201, version), "{retry:?}");
        assert!(!first.is_replay() && retry.is_replay(), "{first:?} {retry:?}");
        assert_eq!((first.body.as_slice(), retry.body.as_slice()), (BODY, BODY));
        assert_eq!(asked.load(Ordering::SeqCst), number + 1);
    }
}

#[test]
fn h49_curl_behind_a_trusted_proxy_is_its_client() {
    let by_address = "[defaults]\nscope = ['address']\n";
    let trusted = "[proxies]\ntrusted = ['127.0.0.0/8']\nproxy_protocol = true\n";
    let (_home, upstream, gateway, desk) = started(&format!("{trusted}{by_address}"));
    let asked = upstream.serve();
    let url = format!("http://{}/payments", gateway.address);
    for (option, version) in VERSIONS {
        let key = format!("Idempotency-Key: curl-{version}");
        let pay = |client: &str| {
            let client = format!("X-Forwarded-For: {client}");
            desk.curl(&[option, "--haproxy-protocol", "-d", "x", "-H", &key, "-H", &client, &url])
        };
        let (first, other) = (pay("203.0.113.9"), pay("203.0.113.10"));
        assert_eq!((first.status, other.status), (201, 201), "{first:?} {other:?}");
        let retry = pay("203.0.113.10, 203.0.113.9");
        assert!(!other.is_replay() && retry.is_replay(), "{other:?} {retry:?}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    // Without the PROXY protocol there is no answer at all.
    let silent = desk.curl(&["-d", "x", &url]);
    assert!(silent.exit != 0 && silent.status == 0, "{silent:?}");
}

#[test]
fn another_request_with_the_same_key_is_refused() {
    let (_home, upstream, gateway, desk) = started("");
    let asked = upstream.serve();
    let url = format!("http://{}/payments", gateway.address);
    let key = "Idempotency-Key: k";
    assert_eq!(desk.curl(&["--json", r#"{"amount":5}"#, "-H", key, &url]).status, 201);
    let other = desk.curl(&["--json", r#"{"amount":6}"#, "-H", key, &url]);
    assert_eq!(other.status, 422, "{other:?}");
    assert!(other.has("content-type: application/problem+json"), "{other:?}");
    // The order of the members is no difference.
    let first = desk.curl(&["--json", r#"{ "a":1, "b":2 }"#, "-H", "Idempotency-Key: l", &url]);
    let same = desk.curl(&["--json", r#"{"b":2,"a":1}"#, "-H", "Idempotency-Key: l", &url]);
    assert!(same.is_replay() && same.body == first.body, "{same:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn h04_two_key_lines_are_refused_in_both_versions() {
    let (_home, upstream, gateway, desk) = started("");
    let url = format!("http://{}/payments", gateway.address);
    for (option, version) in VERSIONS {
        let lines = ["-H", "Idempotency-Key: a", "-H", "Idempotency-Key: a"];
        let told = desk.curl(&[&[option, "-d", "x=1", &url][..], &lines].concat());
        assert_eq!((told.status, told.version.as_str()), (400, version), "{told:?}");
    }
    assert!(upstream.is_left_alone());
}

#[test]
fn h34_a_body_is_asked_for_once_its_key_is_valid() {
    let (_home, upstream, gateway, desk) = started("");
    let asked = upstream.serve();
    let url = format!("http://{}/payments", gateway.address);
    let send = |key: &str| {
        let expect = ["-H", "Expect: 100-continue", "--expect100-timeout", "20"];
        desk.curl(&[&["-d", "x=1", "-H", key, &url][..], &expect].concat())
    };
    let bad = send("Idempotency-Key: \"not closed");
    assert_eq!(bad.status, 400, "{bad:?}");
    assert!(!bad.heads.contains("100 Continue"), "{bad:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let good = send("Idempotency-Key: good");
    assert_eq!(good.status, 201, "{good:?}");
    assert!(good.heads.starts_with("HTTP/1.1 100 Continue"), "{good:?}");
}

#[test]
fn tls_speaks_both_versions() {
    let (home, upstream, desk) = (Home::new(), Upstream::new(), Desk::new());
    let secure = Secure::start(&home, upstream.address());
    let asked = upstream.serve();
    let url = format!("https://localhost:{}/payments", secure.address.port());
    let authority = secure.authority.to_str().unwrap();
    for (number, (option, version)) in
        [("--http1.1", "1.1"), ("--http2", "2")].into_iter().enumerate()
    {
        let key = format!("Idempotency-Key: tls-{version}");
        let args = [option, "--cacert", authority, "-d", "x=1", "-H", &key, &url];
        let (first, retry) = (desk.curl(&args), desk.curl(&args));
        assert_eq!((first.status, first.version.as_str()), (201, version), "{first:?}");
        assert!(!first.is_replay() && retry.is_replay(), "{retry:?}");
        assert_eq!(asked.load(Ordering::SeqCst), number + 1);
    }
    // Who does not know the authority is told nothing.
    let stranger = desk.curl(&["-d", "x=1", &url]);
    assert_eq!((stranger.status, stranger.exit), (0, 60), "{stranger:?}");
}

#[test]
fn a_large_upload_passes_and_a_protected_one_is_refused() {
    let (_home, upstream, gateway, desk) = started("");
    let asked = upstream.serve();
    let url = format!("http://{}/files/a", gateway.address);
    let bytes: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let file = desk.file("large", &bytes);
    let file = file.to_str().unwrap();
    for (option, _) in VERSIONS {
        let told = desk.curl(&[option, "--upload-file", file, &url]);
        assert_eq!(told.status, 201, "{:?}", told.heads);
        assert!(told.body == bytes, "the upload came back changed");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let memory = gateway.resident_mib();
    assert!(memory < 200, "{memory} MiB");
    let data = format!("@{file}");
    let key = ["-H", "Idempotency-Key: large", "-H", "Expect: 100-continue"];
    let told = desk.curl(&[&["--http1.1", "--data-binary", &data, &url][..], &key].concat());
    assert_eq!(told.status, 413, "{told:?}");
    // Versions of curl before 8 forget an answer that comes before the upload is over: exit 92.
    // The frames themselves are looked at with the hostile clients.
    let key = ["-H", "Idempotency-Key: large"];
    let version = "--http2-prior-knowledge";
    let told = desk.curl(&[&[version, "--data-binary", &data, &url][..], &key].concat());
    assert!(told.status == 413 || told.exit == 92, "{told:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn h19_who_gives_up_finds_the_outcome_later() {
    let (_home, upstream, gateway, desk) = started("");
    let url = format!("http://{}/payments", gateway.address);
    let args = ["-d", "x=1", "-H", "Idempotency-Key: k", "-H", "Prefer: wait=20", &url];
    let impatient = desk.curl(&[&["--max-time", "1"][..], &args].concat());
    assert_eq!((impatient.status, impatient.exit), (0, 28), "{impatient:?}");
    // The client has gone; the service has not even been heard yet.
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[], b"paid");
    let retry = desk.curl(&args);
    assert_eq!((retry.status, retry.body.as_slice()), (201, &b"paid"[..]), "{retry:?}");
    assert!(retry.is_replay(), "{retry:?}");
    assert!(upstream.is_left_alone());
}
