//! What operators read: numbers that are right however large, labels that are right however odd,
//! and texts that cannot steer a terminal.

use std::io::Write;
use std::process::{Command, Stdio};

use justonce::engine::Begun;
use justonce::redis::RedisStore;
use justonce::saga::{Call as StepCall, Saga, SagaStep, StepError};
use justonce::{EmbeddedStore, Engine, Key, Operation, Scope, UnknownReason};
use justonce_testbed::RedisServer;

use crate::gateway::stage::BODY;
use crate::gateway::unknown::stage::admin_get;
use crate::support::client::{Call, until};
use crate::support::process::{Home, justonce};
use crate::support::upstream::Upstream;

/// More than the pages that a scrape looks at.
const UNKNOWN: usize = 9000;

/// "The gauge misses none."
#[test]
fn the_gauge_of_unknown_operations_misses_none() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::builder(home.path().join("data")).open().unwrap();
        let engine = Engine::new(store);
        let numbers: Vec<usize> = (0..UNKNOWN).collect();
        for some in numbers.chunks(500) {
            let mut all = tokio::task::JoinSet::new();
            for number in some {
                let key = Key::client(format!("key-{number}")).unwrap();
                let engine = engine.clone();
                all.spawn(async move {
                    let operation = Operation::without_fingerprint(Scope::global(), key);
                    let begun = engine.begin(&operation).await.unwrap();
                    let Begun::Claimed(mut claim) = begun else { panic!("it is new") };
                    let _ = claim.abandon(UnknownReason::Reported).await.unwrap();
                });
            }
            all.join_all().await;
        }
        engine.drained().await;
    });
    drop(runtime);
    let gateway = home.start();
    let text = admin_get(gateway.admin, "/metrics").text();
    let waiting = text.lines().find_map(|line| line.strip_prefix("idempotency_unknown_waiting "));
    assert_eq!(waiting, Some(UNKNOWN.to_string().as_str()));
}

/// Names of routes that a configuration may have, and as Prometheus writes them.
const NAMES: [(&str, &str); 5] = [
    (r#"a "quoted" one"#, r#"a \"quoted\" one"#),
    (r"back\slash\n", r"back\\slash\\n"),
    ("a&b=c%20", "a&b=c%20"),
    ("~tilde", "~tilde"),
    ("ä€{x=1},", "ä€{x=1},"),
];

#[test]
fn odd_names_of_routes_are_counted_under_their_own_labels() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let mut more = String::new();
    for (number, (name, _)) in NAMES.iter().enumerate() {
        more += &format!("[[route]]\nmatch = 'POST /r{number}'\nname = '{name}'\n");
    }
    home.configure(upstream.address(), &more);
    let gateway = home.start();
    for number in 0..NAMES.len() {
        let request = format!("POST /r{number}");
        let mut call = Call::send(gateway.address, &request, &[("idempotency-key", "k")], BODY);
        let mut connection = upstream.accept();
        connection.read();
        drop(connection);
        assert_eq!(call.answer().status(), 502);
    }
    let text = admin_get(gateway.admin, "/metrics").text();
    for (_, label) in NAMES {
        for line in [
            format!(
                "idempotency_unknown_outcomes_total{{route=\"{label}\",reason=\"reported\"}} 1"
            ),
            format!(
                "idempotency_requests_total{{route=\"{label}\",status=\"abandoned\",\
                 duplicate=\"false\"}} 1"
            ),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// Everything of a saga that others wrote is shown without what would steer the terminal.
#[test]
fn a_saga_cannot_steer_the_terminal() {
    let server = RedisServer::start().unwrap();
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), &server.url(), "");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // The one-character forms of ESC [ and ESC ], which terminals obey as well.
    let hostile = "a\u{9b}2J\u{9d}0;owned\u{7}\u{1b}[31m\u{7f}b";
    let id = runtime.block_on(async {
        let store = RedisStore::builder(server.url()).open().await.unwrap();
        let engine = Engine::new(store);
        let step = SagaStep::new(hostile, move |_: StepCall<String>| {
            std::future::ready(Err::<(), _>(StepError::permanent(hostile)))
        })
        .undo(async |_| Ok(()));
        let keep = SagaStep::new("keep", async |_: StepCall<String>| Ok(()))
            .undo(move |_| std::future::ready(Err(StepError::permanent(hostile))));
        let saga = Saga::<String>::builder("order").step(keep).step(step).build().unwrap();
        let scope = Scope::builder().tenant(hostile);
        let key = Key::client("order-17").unwrap();
        let operation = saga.operation(scope, key, &hostile.to_owned()).unwrap();
        saga.run(&engine, &operation).await.unwrap();
        operation.id().to_string()
    });
    let gateway = home.start();
    for command in [
        &["sagas", "list"][..],
        &["sagas", "show", &id],
        &["sagas", "show", &id, "--contents"],
        &["keys", "list"],
        &["keys", "show", &id],
    ] {
        let run = || {
            let mut program = justonce();
            program.args(command).args(["--admin", &gateway.admin.to_string()]);
            let output = program.output().unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        let shown = until("the saga", run, |shown| shown.contains("order-17"));
        let steering: Vec<char> = shown.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert!(steering.is_empty(), "{command:?} writes {steering:?}: {shown:?}");
    }
}
