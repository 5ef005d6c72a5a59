//! The access log: a line for each request (h54).

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::gateway::contract::http2;
use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// A gateway that writes its access log into a file.
struct Logged {
    home: Home,
    upstream: Upstream,
    gateway: Gateway,
}

impl Logged {
    fn start(more: &str) -> Self {
        let (home, upstream) = (Home::new(), Upstream::new());
        let log = format!("access_log.to = '{}'\n", file(&home).display());
        home.configure(upstream.address(), &format!("log.format = 'json'\n{log}{more}"));
        let gateway = home.start();
        Self { home, upstream, gateway }
    }

    fn send(&self, request: &str, headers: &[(&str, &str)], body: &str) -> Call {
        Call::send(self.gateway.address, request, headers, body)
    }

    /// Waits for so many lines, and returns the last.
    fn lines(&self, count: usize) -> Vec<String> {
        let read = || std::fs::read_to_string(file(&self.home)).unwrap_or_default();
        let text = until("the lines", read, |text| text.lines().count() >= count);
        assert!(text.ends_with('\n'), "{text}");
        text.lines().map(str::to_owned).collect()
    }

    fn json(&self, count: usize) -> Value {
        serde_json::from_str(self.lines(count).last().unwrap()).unwrap()
    }
}

fn file(home: &Home) -> PathBuf {
    home.path().join("access.log")
}

const SECRETS: [(&str, &str); 4] = [
    ("idempotency-key", "sk-secret-key"),
    ("authorization", "Bearer sk-secret-token"),
    ("cookie", "session=sk-secret-cookie"),
    ("x-api-key", "sk-secret-api-key"),
];
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn h54_each_request_has_a_line_with_all_that_is_known() {
    let format = "access_log.format = 'json'\nproxies.trusted = ['127.0.0.1']\n";
    let route = "[[route]]\nmatch = 'POST /payments'\nname = 'payments'\n";
    let logged = Logged::start(&format!("{format}{route}"));
    let more = [("traceparent", PARENT), ("x-forwarded-for", "203.0.113.9")];
    let headers = [&SECRETS[..], &more].concat();
    let mut call = logged.send("POST /payments?card=sk-secret-card", &headers, BODY);
    let mut connection = logged.upstream.accept();
    connection.read();
    // The upstream takes its time, which is not ours.
    let slow = std::time::Duration::from_millis(50);
    std::thread::park_timeout(slow); // tidy: allow-sleep: a duration is measured
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().status(), 201);
    let line = logged.json(1);
    let expected = [
        ("client", "203.0.113.9"),
        ("method", "POST"),
        ("path", "/payments"),
        ("version", "HTTP/1.1"),
        ("route", "payments"),
        ("answer", "executed"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
    ];
    for (name, value) in expected {
        assert_eq!(line[name], value, "{line}");
    }
    for (name, number) in
        [("status", 201), ("request_bytes", BODY.len()), ("response_bytes", 4), ("attempt", 1)]
    {
        assert_eq!(line[name], number, "{line}");
    }
    let millis = |name: &str| line[name].as_f64().unwrap();
    assert!(millis("upstream_ms") >= 40.0 && millis("ms") >= millis("upstream_ms"), "{line}");
    assert!((millis("ms") - millis("upstream_ms") - millis("ours_ms")).abs() < 0.01, "{line}");
    // The same hash as in the other log.
    let key = line["key"].as_str().unwrap();
    let told = logged.gateway.log_line("justonce::request");
    assert!(key.starts_with('#') && told.contains(&format!("Key({key})")), "{line} {told}");
    assert!(told.contains(line["record"].as_str().unwrap()), "{line} {told}");

    assert!(!logged.lines(1).join("").contains("secret"), "{line}");
}

#[test]
fn h54_a_request_that_a_limit_refuses_has_its_key_and_record_too() {
    let limits = "[defaults.per_caller]\nrate = '1/h'\n";
    let logged = Logged::start(&format!("access_log.format = 'json'\n{limits}"));
    let pay = |key| logged.send("POST /payments", &[("idempotency-key", key)], BODY);
    let mut first = pay("a");
    logged.upstream.accept().read();
    // The service has gone: what became of it does not matter here.
    first.answer();
    assert_eq!(pay("b").answer().status(), 429);
    let line = logged.json(2);
    assert_eq!((&line["answer"], &line["status"]), (&"limited".into(), &429.into()), "{line}");
    assert!(line["key"].as_str().is_some_and(|key| key.starts_with('#')), "{line}");
    assert!(line["record"].is_string(), "{line}");
}

/// What of a line tells how a request was answered.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    route: String,
    answer: String,
    status: u64,
    is_forwarded: bool,
}

fn ended(route: &str, answer: &str, status: u64, is_forwarded: bool) -> Ended {
    Ended { route: route.to_owned(), answer: answer.to_owned(), status, is_forwarded }
}

#[test]
fn h54_lines_say_how_each_request_was_answered() {
    let routes = "[[route]]\nmatch = 'POST /payments'\nname = 'payments'\n\
                  [[route]]\nmatch = 'PUT /free'\nkey = 'off'\n";
    let logged = Logged::start(&format!("access_log.format = 'json'\n{routes}"));
    let mut connection = None;
    let page = "GET /.well-known/idempotency/sk-secret-key?path=/p";
    let paid = "POST /payments?card=sk-secret-card";
    for (at, (request, is_keyed, body, expected)) in [
        (paid, true, BODY, ended("payments", "executed", 200, true)),
        (paid, true, BODY, ended("payments", "replayed", 200, false)),
        (paid, true, "[]", ended("payments", "mismatch", 422, false)),
        (paid, false, "[]", ended("payments", "unprotected", 200, true)),
        ("PUT /free", true, "[]", ended("PUT /free", "passed", 200, true)),
        ("GET /payments?token=sk-secret", true, "", ended("", "passed", 200, true)),
        (page, true, "", ended("", "page", 200, false)),
        ("POST //payments%2F", true, "", ended("default", "refused", 400, false)),
    ]
    .into_iter()
    .enumerate()
    {
        let headers = if is_keyed { &SECRETS[..] } else { &SECRETS[1..] };
        let mut call = logged.send(request, headers, body);
        if expected.is_forwarded {
            let connection = connection.get_or_insert_with(|| logged.upstream.accept());
            connection.read();
            connection.answer("200 OK", &[], b"fine");
        }
        call.answer();
        let line = logged.json(at + 1);
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let found = Ended {
            route: text("route"),
            answer: text("answer"),
            status: line["status"].as_u64().unwrap(),
            is_forwarded: !line["upstream_ms"].is_null(),
        };
        assert_eq!(found, expected, "{line}");
    }
    let text = logged.lines(8).join("\n");
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(text.lines().count(), 8, "{text}");
}

#[test]
fn h54_a_response_that_is_streamed_is_logged_at_its_end() {
    let logged = Logged::start("access_log.format = 'json'\n");
    let mut call = logged.send("POST /payments", &[("idempotency-key", "k")], BODY);
    let mut connection = logged.upstream.accept();
    connection.read();
    connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n");
    // The head and the first piece are there before the end.
    assert!(call.some(15).starts_with(b"HTTP/1.1 200 OK"));
    assert_eq!(std::fs::read_to_string(file(&logged.home)).unwrap(), "");
    connection.write(b"3\r\nend\r\n0\r\n\r\n");
    let line = logged.json(1);
    assert_eq!(line["response_bytes"], 8, "{line}");
    assert_eq!((&line["answer"], &line["cut"]), (&"executed".into(), &Value::Null), "{line}");
}

#[test]
fn h54_a_client_that_leaves_is_logged_too() {
    let logged = Logged::start("access_log.format = 'json'\n");
    let call = logged.send("GET /slow", &[], "");
    let mut connection = logged.upstream.accept();
    connection.read();
    drop(call);
    let line = logged.json(1);
    assert_eq!(line["answer"], "client_left", "{line}");
    assert_eq!(line["status"], Value::Null, "{line}");
    // And one that leaves in the middle of the response.
    let mut call = logged.send("GET /slow", &[], "");
    let mut connection = logged.upstream.accept();
    connection.read();
    connection.begin_answer("200 OK", &[], 1_000_000);
    connection.write(b"some");
    call.some(15);
    drop(call);
    let line = logged.json(2);
    assert_eq!((&line["status"], &line["cut"]), (&200.into(), &true.into()), "{line}");
}

#[test]
fn h54_no_request_can_forge_a_line() {
    for format in ["text", "json", "combined"] {
        let logged = Logged::start(&format!(
            "access_log.format = '{format}'\naccess_log.query = 'values'\n"
        ));
        let mut call = Call::connect(logged.gateway.address);
        let mut head = b"GET /a%0a1.1.1.1?b=%0d%0a%22x{} HTTP/1.1\r\nhost: t\r\n".to_vec();
        head.extend_from_slice(b"user-agent: a\" 200 1 \"-\" \"\x85\xff\\\r\n");
        head.extend_from_slice(b"referer: http://me:pw@h/p?token=1#x\"\tstatus=200\r\n\r\n");
        call.write(&head);
        let mut connection = logged.upstream.accept();
        connection.read();
        connection.answer("200 OK", &[], b"");
        assert_eq!(call.answer().status(), 200);
        let lines = logged.lines(1);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.is_ascii() && !line.contains("me:pw"), "{line}");
        match format {
            "json" => {
                let json: Value = serde_json::from_str(line).unwrap();
                assert_eq!(json["path"], "/a%0a1.1.1.1");
            }
            "combined" => {
                assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
                let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
                assert_eq!(quotes, 6, "{line}");
                assert!(line.contains("\\xef\\xbf\\xbd"), "{line}");
            }
            _ => assert_eq!(line.matches(" status=").count(), 1, "{line}"),
        }
    }
}

#[test]
fn h54_a_file_that_was_moved_away_is_made_anew_on_sighup() {
    let logged = Logged::start("");
    let state = "GET /.well-known/idempotency/k?path=/payments";
    logged.send(state, &[], "").answer();
    logged.lines(1);
    let moved = logged.home.path().join("access.log.1");
    std::fs::rename(file(&logged.home), &moved).unwrap();
    logged.send(state, &[], "").answer();
    until(
        "the old file",
        || std::fs::read_to_string(&moved).unwrap(),
        |text| text.lines().count() == 2,
    );
    logged.gateway.signal(Signal::SIGHUP);
    until("the new file", || file(&logged.home).exists(), |exists| *exists);
    logged.send(state, &[], "").answer();
    let lines = logged.lines(1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(" answer=page") && lines[0].contains(" status=200 "), "{lines:?}");
    let mode = std::fs::metadata(file(&logged.home)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o007, 0);
}

#[test]
fn h54_requests_over_http2_have_lines_of_their_own() {
    let logged = Logged::start("access_log.format = 'combined'\n");
    let agent = [("user-agent", "test/2"), ("referer", "https://shop.example/cart?id=7")];
    let answer = http2::post(logged.gateway.address, "/a%2Fb?c=d", &agent, BODY);
    assert_eq!(answer.status.as_u16(), 400);
    let line = logged.lines(1).remove(0);
    let length = answer.body.len();
    let end =
        format!("\"POST /a%2Fb HTTP/2.0\" 400 {length} \"https://shop.example/cart\" \"test/2\"");
    assert!(line.ends_with(&end), "{line}");
}

#[test]
fn h54_a_part_of_the_reads_is_logged_and_all_the_rest() {
    let logged = Logged::start("access_log.gets = 0.25\n");
    for _ in 0..20 {
        logged.send("GET /.well-known/idempotency/k?path=/payments", &[], "").answer();
    }
    for _ in 0..3 {
        logged.send("POST /%2F", &[], "").answer();
    }
    assert_eq!(logged.lines(8).len(), 8);
}

#[test]
fn h54_what_was_queued_is_written_before_the_end() {
    let Logged { home, upstream: _upstream, gateway } = Logged::start("");
    for _ in 0..50 {
        Call::send(gateway.address, "POST /%2F", &[], "").answer();
    }
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert_eq!(std::fs::read_to_string(file(&home)).unwrap().lines().count(), 50);
}

#[test]
fn h54_a_log_that_cannot_be_opened_stops_the_start() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let nowhere = home.path().join("missing").join("access.log");
    home.configure(upstream.address(), &format!("access_log.to = '{}'", nowhere.display()));
    let error = Gateway::start(home.command()).err().unwrap();
    assert!(error.contains("cannot open the access log"), "{error}");
    let mut check = crate::support::process::justonce();
    let checked = check.arg("check").arg("--config").arg(home.config()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("`access_log.to`"), "{said}");
}

#[test]
fn h54_a_reader_of_standard_output_that_does_not_read_holds_up_no_request() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "access_log.to = 'stdout'\n");
    let mut command = home.command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address: SocketAddr =
        line.trim_end().strip_prefix("listening on http://").unwrap().parse().unwrap();
    // Far more than a pipe holds.
    const REQUESTS: usize = 1000;
    let mut call = Call::connect(address);
    for _ in 0..REQUESTS {
        call.write(b"GET /.well-known/idempotency/k?path=/p HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(call.answer().status(), 200);
    }
    let mut lines = 0;
    while lines < REQUESTS {
        line.clear();
        out.read_line(&mut line).unwrap();
        lines += usize::from(line.contains(" answer=page"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn h54_without_the_setting_nothing_is_written() {
    let (home, upstream, gateway) = started("");
    upstream.serve();
    assert_eq!(Call::pay(gateway.address, "k", BODY).answer().status(), 201);
    assert!(!file(&home).exists());
}

/// What the listener refuses itself: nothing behind it has seen these requests.
#[test]
fn h54_requests_whose_heads_cannot_be_read_have_lines_and_are_counted() {
    let logged = Logged::start(
        "access_log.format = 'json'\ntimeouts = { header = '100ms' }\n\
         limits = { header_bytes = '8KiB' }\n",
    );
    let long = format!("GET / HTTP/1.1\r\nhost: t\r\nx: {}\r\n\r\n", "x".repeat(20_000));
    let table = [
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "malformed", Some(400)),
        ("GET / HTTP/1.1\nhost: a\n\n", "malformed", Some(400)),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "malformed",
            Some(400),
        ),
        ("\u{16}\u{3}\u{1}\r\n\r\n", "malformed", Some(400)),
        (&long, "too_large", Some(431)),
        ("GET / HTTP/1.1\r\nhost: a\r\n", "timed_out", None),
    ];
    for (at, (bytes, reason, status)) in table.into_iter().enumerate() {
        let mut call = Call::connect(logged.gateway.address);
        call.write(bytes.as_bytes());
        let answered = call.try_answer().map(|answer| answer.status());
        assert_eq!(answered, status, "{bytes:?}");
        let line = logged.json(at + 1);
        assert_eq!(
            (&line["answer"], &line["reason"]),
            (&"refused".into(), &reason.into()),
            "{line}"
        );
        assert_eq!(line["status"].as_u64(), status.map(u64::from), "{line}");
        assert_eq!(line["client"], "127.0.0.1", "{line}");
    }
    // One that leaves in the middle; and a connection without a request has no line.
    drop(Call::connect(logged.gateway.address));
    Call::connect(logged.gateway.address).write(b"GET / HTT");
    let line = logged.json(7);
    assert_eq!(line["reason"], "cut_off", "{line}");
    let metrics = Call::get(logged.gateway.admin, "/metrics").text();
    for (reason, count) in [("malformed", 4), ("too_large", 1), ("timed_out", 1), ("cut_off", 1)] {
        let line = format!("justonce_unread_requests_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{reason}: {metrics}");
    }
    let first = &logged.lines(7)[0];
    assert!(first.contains("\"method\":\"GET\",\"path\":\"/\""), "{first}");
}
