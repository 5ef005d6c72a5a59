//! Sagas of another program on the same store, seen and retried through the gateway.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce::postgres::PostgresStore;
use justonce::redis::RedisStore;
use justonce::saga::{
    Call as StepCall, Completer, CompleterSettings, Saga, SagaStep, StepError, Tries,
};
use justonce::{BackOff, Engine, Key, Scope};
use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};
use serde_json::{Value, json};

use crate::gateway::stage::BODY;
use crate::gateway::unknown::stage::{admin_get, admin_post};
use crate::support::client::pay;
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::Upstream;

const ONCE: Tries = Tries { most: 1, back_off: BackOff::DEFAULT };

/// A saga that is refused at its second step if its order says so, and whose first compensation
/// fails until it is mended.
fn orders(mended: &Arc<AtomicBool>) -> Saga<String> {
    let mended = Arc::clone(mended);
    let reserve = SagaStep::new("reserve", async |_: StepCall<String>| Ok(()))
        .undo(move |call: StepCall<String>| {
            let fine = mended.load(Ordering::SeqCst) || call.context() != "stuck";
            let said = if fine { Ok(()) } else { Err(StepError::passing("the shop is closed")) };
            std::future::ready(said)
        })
        .undo_tries(ONCE);
    let charge = SagaStep::new("charge", async |call: StepCall<String>| match &**call.context() {
        "fine" => Ok(()),
        _ => Err(StepError::permanent("no money")),
    });
    Saga::builder("order").step(reserve).step(charge).build().unwrap()
}

/// The program that runs the sagas.
struct Program {
    runtime: tokio::runtime::Runtime,
    engine: Engine,
    mended: Arc<AtomicBool>,
}

impl Program {
    fn new(engine: impl AsyncFnOnce() -> Engine) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let engine = runtime.block_on(engine());
        let program = Self { runtime, engine, mended: Arc::default() };
        for kind in ["fine", "refused", "stuck"] {
            program.run(kind);
        }
        program.park();
        program
    }

    fn run(&self, kind: &str) {
        let saga = orders(&self.mended);
        let scope = Scope::builder().tenant("acme");
        let key = Key::client(format!("order-{kind}")).unwrap();
        let operation = saga.operation(scope, key, &kind.to_owned()).unwrap();
        self.runtime.block_on(saga.run(&self.engine, &operation)).unwrap();
    }

    /// Leaves a saga whose result cannot be saved.
    fn park(&self) {
        let load = SagaStep::new("load", async |call: StepCall<String>| match &**call.context() {
            "parked" => Ok::<_, StepError>("x".repeat(300 * 1024)),
            _ => Ok(String::new()),
        });
        let load = load.saves(|context: &mut String, loaded| *context = loaded);
        let saga = Saga::builder("report")
            .step(load)
            .step(SagaStep::new("send", async |_: StepCall<String>| Ok(())))
            .build()
            .unwrap();
        let key = Key::client("report-parked").unwrap();
        let operation = saga.operation(Scope::builder(), key, &"parked".to_owned()).unwrap();
        let said = self.runtime.block_on(saga.run(&self.engine, &operation)).unwrap_err();
        assert!(said.to_string().contains("load"), "{said}");
    }

    /// How many a completer ends that leaves stuck sagas to the operator.
    fn complete(&self) -> usize {
        let settings = CompleterSettings {
            unchanged_for: Duration::ZERO,
            retry_stuck: None,
            ..CompleterSettings::default()
        };
        let completer = Completer::new(&self.engine, settings).with(orders(&self.mended)).unwrap();
        self.runtime.block_on(async {
            let (one, two) = (completer.round().await, completer.round().await);
            assert_eq!((one.troubles, two.troubles), (vec![], vec![]));
            one.ended + two.ended
        })
    }
}

fn rows(gateway: &Gateway, query: &str) -> Vec<(String, String)> {
    let page = admin_get(gateway.admin, &format!("/sagas{query}")).json();
    assert_eq!(page["next"], Value::Null, "{page}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let sagas = page["sagas"].as_array().unwrap().iter();
    let mut rows: Vec<_> = sagas.map(|saga| (text(&saga["key"]), text(&saga["state"]))).collect();
    rows.sort();
    rows
}

fn id(gateway: &Gateway, state: &str) -> String {
    let page = admin_get(gateway.admin, &format!("/sagas?state={state}")).json();
    page["sagas"][0]["id"].as_str().unwrap().to_owned()
}

fn sagas(gateway: &Gateway, more: &[&str]) -> Output {
    let mut command = justonce();
    command.env("USER", "ann").arg("sagas").args(more);
    command.args(["--admin", &gateway.admin.to_string()]).output().unwrap()
}

fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn seen_and_retried(program: &Program, url: &str) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), url, "");
    let _ = upstream.serve();
    let gateway = home.start();
    // What else is in the store is no saga.
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    let all = [
        ("order-fine", "done"),
        ("order-refused", "rolled_back"),
        ("order-stuck", "stuck"),
        ("report-parked", "parked"),
    ];
    let all = all.map(|(key, state)| (key.to_owned(), state.to_owned()));
    assert_eq!(rows(&gateway, ""), all);
    assert_eq!(rows(&gateway, "?saga=order&tenant=acme"), all[..3]);
    assert_eq!(rows(&gateway, "?saga=other"), []);
    for (key, state) in &all {
        assert_eq!(rows(&gateway, &format!("?state={state}")), [(key.clone(), state.clone())]);
    }
    let stuck = id(&gateway, "stuck");
    shown(&gateway, &stuck);
    refused(&gateway, &stuck);
    parked(&gateway);
    // The completer leaves it alone until it is retried.
    assert_eq!(program.complete(), 0);
    program.mended.store(true, Ordering::SeqCst);
    assert_eq!(program.complete(), 0);
    let retried = printed(&sagas(&gateway, &["retry", &stuck[..16]]));
    assert!(retried.contains(&stuck) && retried.contains("due again"), "{retried}");
    assert_eq!(rows(&gateway, "?state=running&saga=order").len(), 1);
    assert_eq!(program.complete(), 1);
    assert_eq!(rows(&gateway, "?state=rolled_back").len(), 2);
    let show = printed(&sagas(&gateway, &["show", &stuck]));
    assert!(show.contains("rolled_back"), "{show}");
    assert!(show.contains("retried by ann"), "who asked is kept: {show}");
}

fn shown(gateway: &Gateway, stuck: &str) {
    let saga = admin_get(gateway.admin, &format!("/sagas/{}", &stuck[..12])).json();
    assert_eq!(saga["saga"], "order");
    assert_eq!(saga["stuck"], json!(["reserve"]));
    assert_eq!(saga["fallen"], json!({ "step": "charge", "why": "no money" }));
    let steps = saga["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["name"], &steps[0]["mark"]), (&json!("reserve"), &json!("stuck_back")));
    assert_eq!(steps[0]["why"], "the shop is closed");
    assert_eq!((&steps[1]["mark"], &steps[1]["compensated"]), (&json!("refused"), &json!(false)));
    assert_eq!(saga["context"], Value::Null, "contents only for those who ask");
    let whole = admin_get(gateway.admin, &format!("/sagas/{stuck}?contents=true")).json();
    assert_eq!(whole["context"], "stuck");
    let list = printed(&sagas(gateway, &["list", "--state", "stuck"]));
    for text in [&stuck[..16], "order-stuck", "reserve", "tenant=acme"] {
        assert!(list.contains(text), "{text} is missing in\n{list}");
    }
    let show = printed(&sagas(gateway, &["show", &stuck[..16]]));
    for text in ["stuck_back", "the shop is closed", "charge: no money", "claimed"] {
        assert!(show.contains(text), "{text} is missing in\n{show}");
    }
    let json: Value = serde_json::from_str(&printed(&sagas(gateway, &["list", "--json"]))).unwrap();
    assert_eq!(json["sagas"].as_array().unwrap().len(), 4);
}

fn parked(gateway: &Gateway) {
    let parked = id(gateway, "parked");
    let list = printed(&sagas(gateway, &["list", "--state", "parked"]));
    for text in [&parked[..16], "report-parked", "load"] {
        assert!(list.contains(text), "{text} is missing in\n{list}");
    }
    let show = printed(&sagas(gateway, &["show", &parked[..16]]));
    for text in ["parked because", "253952", "unsaved"] {
        assert!(show.contains(text), "{text} is missing in\n{show}");
    }
    printed(&sagas(gateway, &["retry", &parked[..16]]));
    assert_eq!(rows(gateway, "?state=running").len(), 1);
    assert_eq!(rows(gateway, "?state=parked"), []);
}

fn refused(gateway: &Gateway, stuck: &str) {
    let retry = |id: &str, body: &Value| {
        let answer = admin_post(gateway.admin, &format!("/sagas/{id}/retry"), body);
        (answer.status(), answer.code())
    };
    let by = json!({ "by": "ann" });
    let done = id(gateway, "done");
    assert_eq!(retry(&done, &by), (409, "not-stuck".into()));
    assert_eq!(retry(&"0".repeat(64), &by), (404, "record-not-found".into()));
    assert_eq!(retry(stuck, &json!({ "by": " " })), (400, "request-invalid".into()));
    assert_eq!(retry(&stuck[..16], &by), (400, "request-invalid".into()));
    let keys = admin_get(gateway.admin, "/keys?route=default").json();
    let payment = keys["keys"][0]["id"].as_str().unwrap();
    assert_eq!(retry(payment, &by), (404, "record-not-found".into()));
    let show = admin_get(gateway.admin, &format!("/sagas/{payment}"));
    assert_eq!((show.status(), show.code().as_str()), (404, "record-not-found"));
    assert_eq!(admin_get(gateway.admin, "/sagas?state=odd").status(), 400);
    let output = sagas(gateway, &["retry", &done]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not-stuck"));
}

#[test]
fn on_redis() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let program =
        Program::new(async || Engine::new(RedisStore::builder(server.url()).open().await.unwrap()));
    seen_and_retried(&program, &url);
}

#[test]
fn on_postgres() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let url = server.url();
    let program = Program::new(async || {
        Engine::new(PostgresStore::builder(server.url()).connections(4).open().await.unwrap())
    });
    seen_and_retried(&program, &url);
}
