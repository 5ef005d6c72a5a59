//! The admin API: finding records, looking at them, resolving them.

use serde_json::{Value, json};

use super::stage::{Server, Stage, admin_send};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay_patiently, state};
use crate::support::process::Gateway;

fn ids(page: &Value) -> Vec<String> {
    let keys = page["keys"].as_array().unwrap().iter();
    keys.map(|key| key["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn completed_by_an_operator_replays_like_a_stored_answer() {
    let (stage, heard) = Stage::new().killed_during("order-17");
    let later = pay_patiently(stage.gateway.address, "order-17", BODY);
    assert_eq!((later.status(), later.code().as_str()), (409, "outcome-unknown"));
    let shown = stage.get(&format!("/keys/{}", heard.record)).json();
    assert_eq!((&shown["state"], &shown["key"]), (&json!("unknown"), &json!("order-17")));
    assert_eq!((&shown["fence"], &shown["attempt"]), (&json!(heard.fence), &json!(1)));
    assert_eq!(shown["unknown"]["reason"], "lapsed");
    assert_eq!(shown["scope"]["route"], "payments");
    let said = json!({ "fence": heard.fence, "by": "ann", "why": "receipt 4711", "outcome": {
        "status": 201, "headers": [["x-part", "1"], ["x-part", "2"], ["set-cookie", "a=1"]],
        "json": { "paid": 5 } } });
    let done = stage.post(&format!("/keys/{}/complete", heard.record), &said);
    assert_eq!((done.status(), &done.json()["state"]), (200, &json!("completed")), "{done:?}");
    let replay = stage.pay("order-17");
    assert_eq!((replay.status(), replay.text().as_str()), (201, r#"{"paid":5}"#));
    assert!(replay.is_replay());
    assert_eq!(replay.all("x-part"), ["1", "2"]);
    assert_eq!(replay.header("content-type"), Some("application/json"));
    assert_eq!(replay.header("set-cookie"), None);
    assert_eq!(replay.header("cache-control"), Some("no-store"));
    assert_eq!(stage.resolutions(&heard), ["operator ann completed: receipt 4711"]);
    assert!(stage.upstream.is_left_alone(), "the service was asked again");
    // To say the same again is no mistake: its reply may have been lost.
    let again = stage.post(&format!("/keys/{}/complete", heard.record), &said);
    assert_eq!(again.status(), 200);
}

#[test]
fn released_by_an_operator_is_executed_by_the_next_request() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let done = stage.release(&heard, "bob");
    assert_eq!((done.status(), &done.json()["resolved"]), (200, &json!("released")), "{done:?}");
    let mut call = Call::pay(stage.gateway.address, "k", BODY);
    let mut connection = stage.upstream.accept();
    let second = super::stage::Heard::of(&connection.read());
    assert_eq!(second.record, heard.record);
    assert!(second.fence > heard.fence);
    connection.answer("201 Created", &[], b"paid");
    let answer = call.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (201, "paid"));
    assert!(!answer.is_replay());
    // The word about the first claim says nothing about the second.
    let late = stage.complete(&heard, "carl", "made up");
    assert_eq!((late.status(), late.code().as_str()), (409, "fence-old"), "{late:?}");
    assert_eq!(stage.pay("k").text(), "paid");
}

#[test]
fn failed_by_an_operator_replays_its_answer() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let said = json!({ "fence": heard.fence, "by": "ann", "why": "the card was refused",
                       "outcome": { "status": 402, "body": "no" } });
    let done = stage.post(&format!("/keys/{}/fail", heard.record), &said);
    assert_eq!(done.status(), 200, "{done:?}");
    let replay = stage.pay("k");
    assert_eq!((replay.status(), replay.text().as_str()), (402, "no"));
    assert!(replay.is_replay());
}

#[test]
fn what_is_not_unknown_is_not_resolved() {
    let stage = Stage::new();
    let mut call = Call::pay(stage.gateway.address, "k", BODY);
    let mut connection = stage.upstream.accept();
    let heard = super::stage::Heard::of(&connection.read());
    let running = stage.release(&heard, "ann");
    assert_eq!((running.status(), running.code().as_str()), (409, "not-unknown"), "{running:?}");
    assert_eq!(running.json()["state"], "in_progress");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().status(), 201);
    let settled = stage.complete(&heard, "ann", "other");
    assert_eq!((settled.status(), &settled.json()["state"]), (409, &json!("completed")));
    assert_eq!(stage.pay("k").text(), "paid");
    let nobody = super::stage::Heard { record: "0".repeat(64), fence: 1 };
    let gone = stage.release(&nobody, "ann");
    assert_eq!((gone.status(), gone.code().as_str()), (404, "record-not-found"));
    assert_eq!(stage.get(&format!("/keys/{}", "0".repeat(64))).code(), "record-not-found");
}

#[test]
fn what_waits_and_what_was_resolved_is_counted() {
    let stage = Stage::new();
    let (first, second) = (stage.unknown("a"), stage.unknown("b"));
    let numbers = stage.get("/metrics").text();
    assert!(numbers.contains("idempotency_unknown_waiting 2"), "{numbers}");
    let oldest = numbers.lines().find(|line| line.starts_with("idempotency_unknown_oldest"));
    let age = oldest.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
    assert_eq!(stage.release(&first, "ann").status(), 200);
    assert_eq!(stage.complete(&second, "ann", "paid").status(), 200);
    assert_eq!(stage.complete(&second, "bob", "other").status(), 409);
    let numbers = stage.get("/metrics").text();
    for line in [
        "idempotency_unknown_waiting 0",
        "idempotency_unknown_oldest_seconds 0",
        r#"idempotency_resolutions_total{by="operator",result="released"} 1"#,
        r#"idempotency_resolutions_total{by="operator",result="completed"} 1"#,
        r#"idempotency_resolutions_total{by="operator",result="refused"} 1"#,
        r#"idempotency_resolutions_total{by="callback",result="completed"} 0"#,
    ] {
        assert!(numbers.contains(line), "{line} is missing in\n{numbers}");
    }
}

#[test]
fn bad_input_changes_nothing() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let fence = heard.fence;
    let outcome = json!({ "status": 201 });
    let long = "x".repeat(300);
    for (how, said) in [
        ("complete", json!({ "fence": fence, "by": "ann", "why": "w" })),
        ("complete", json!({ "by": "ann", "why": "w", "outcome": outcome })),
        ("complete", json!({ "fence": fence, "by": " ", "why": "w", "outcome": outcome })),
        ("complete", json!({ "fence": fence, "by": "ann", "why": "", "outcome": outcome })),
        ("complete", json!({ "fence": fence, "by": "ann", "why": long, "outcome": outcome })),
        ("complete", json!({ "fence": fence, "by": "ann", "why": "w", "outcome": { "status": 7 }})),
        ("complete", json!({ "fence": fence, "by": "ann", "why": "w", "outcom": outcome })),
        ("release", json!({ "fence": fence, "by": "ann", "why": "w", "outcome": outcome })),
        ("release", json!({ "fence": "x", "by": "ann", "why": "w" })),
        ("release", json!("text")),
    ] {
        let refused = stage.post(&format!("/keys/{}/{how}", heard.record), &said);
        assert_eq!((refused.status(), refused.code().as_str()), (400, "request-invalid"), "{said}");
    }
    for path in [
        "/keys?state=odd",
        "/keys?limit=0",
        "/keys?limit=2000",
        "/keys?after=x",
        "/keys?unknown=1",
        "/keys?unchanged_for=soon",
        "/keys/xyz",
        "/keys/12",
    ] {
        assert_eq!(stage.get(path).code(), "request-invalid", "{path}");
    }
    let cut =
        stage.release(&super::stage::Heard { record: heard.record[..12].to_owned(), fence }, "ann");
    assert_eq!(cut.code(), "request-invalid", "only whole names are resolved");
    assert_eq!(state(stage.gateway.address, "k"), "unknown");
}

#[test]
fn web_pages_and_strangers_are_kept_out() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let admin = stage.gateway.admin;
    let said = json!({ "fence": heard.fence, "by": "eve", "why": "w" }).to_string();
    let path = format!("POST /keys/{}/release", heard.record);
    let json = ("content-type", "application/json");
    for headers in [&[][..], &[("content-type", "text/plain")], &[json, ("origin", "http://a")]] {
        assert_eq!(admin_send(admin, &path, headers, &said).status(), 403, "{headers:?}");
    }
    let mut rebound = Call::connect(admin);
    rebound.write(b"GET /keys HTTP/1.1\r\nhost: evil.example:8081\r\n\r\n");
    assert_eq!(rebound.answer().status(), 403);
    let mut command = stage.home.command();
    let data = stage.home.path().join("other");
    command.args(["--store", &format!("file:{}", data.display())]);
    command.args(["--set", "admin_token=s3cret-token-of-operators"]);
    let closed = Gateway::start(command).unwrap();
    for (method, path) in [
        ("GET", "/keys".to_owned()),
        ("GET", "/keys/12345678".to_owned()),
        ("POST", format!("/keys/{}/release", heard.record)),
    ] {
        let request = format!("{method} {path}");
        assert_eq!(admin_send(closed.admin, &request, &[json], &said).status(), 401, "{request}");
        let callback = ("authorization", "Bearer token-of-the-payments-service");
        let refused = admin_send(closed.admin, &request, &[json, callback], &said);
        assert_eq!(refused.status(), 401, "the service's token opens nothing here: {request}");
    }
    let token = ("authorization", "Bearer s3cret-token-of-operators");
    assert_eq!(admin_send(closed.admin, "GET /keys", &[token], "").status(), 200);
}

#[test]
fn records_are_found_by_state_tenant_route_and_key_on_every_store() {
    for server in Server::all() {
        let stage = Stage::with(&server, super::stage::CONFIG);
        let unknown: Vec<_> = (0..5)
            .map(|number| {
                let tenant = if number < 2 { "acme" } else { "other" };
                let more = format!("x-tenant: {tenant}\r\n");
                stage.unknown_of(&format!("order-{number}"), &more).record
            })
            .collect();
        let mut call = Call::pay(stage.gateway.address, "paid-1", BODY);
        let mut connection = stage.upstream.accept();
        connection.read();
        connection.answer("201 Created", &[], b"a secret answer");
        assert_eq!(call.answer().status(), 201);
        let found = |query: &str| {
            let mut found = ids(&stage.get(&format!("/keys?{query}")).json());
            found.sort();
            found
        };
        let some = |wanted: &[usize]| {
            let mut some: Vec<_> = wanted.iter().map(|n| unknown[*n].clone()).collect();
            some.sort();
            some
        };
        let name = server.name();
        assert_eq!(found("state=unknown"), some(&[0, 1, 2, 3, 4]), "{name}");
        assert_eq!(found("state=unknown&tenant=acme"), some(&[0, 1]), "{name}");
        assert_eq!(found("tenant=nobody"), some(&[]), "{name}");
        assert_eq!(found("route=payments&prefix=order-"), some(&[0, 1, 2, 3, 4]), "{name}");
        assert_eq!(found("route=other"), some(&[]), "{name}");
        assert_eq!(found("text=er-3"), some(&[3]), "{name}");
        assert_eq!(found("state=unknown&unchanged_for=1h"), some(&[]), "{name}");
        assert_eq!(found("state=completed").len(), 1, "{name}");
        assert_eq!(found("").len(), 6, "{name}");
        pages_are_complete(&stage, &unknown);
        nothing_leaks(&stage);
    }
}

/// Page by page, everything comes once and in order.
fn pages_are_complete(stage: &Stage, unknown: &[String]) {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = stage.get(&format!("/keys?state=unknown&limit=2{after}")).json();
        assert!(ids(&page).len() <= 2);
        all.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let mut wanted = unknown.to_vec();
    wanted.sort();
    assert_eq!(all, wanted);
    let cut = stage.get(&format!("/keys/{}", &wanted[0][..16])).json();
    assert_eq!(cut["id"], wanted[0].as_str(), "the beginning of a name is enough");
}

/// Contents of outcomes are shown only on request.
fn nothing_leaks(stage: &Stage) {
    let page = stage.get("/keys?state=completed");
    assert!(!page.text().contains("a secret answer"));
    let id = ids(&page.json()).remove(0);
    let shown = stage.get(&format!("/keys/{id}"));
    assert!(!shown.text().contains("a secret answer"));
    assert_eq!(shown.json()["outcome"]["body_bytes"], 15);
    let asked = stage.get(&format!("/keys/{id}?contents=true"));
    assert_eq!(asked.json()["outcome"]["body"], "a secret answer");
}
