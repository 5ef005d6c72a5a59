//! Where keys come from and what they must look like: h01 to h10, h57.

use super::every::on_every_store;
use super::http2;
use super::place::Place;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::process::justonce;

on_every_store! {
    h01_a_string_is_the_key_and_its_parameters_are_ignored,
    h02_strict_refuses_everything_but_a_string,
    h03_lenient_takes_plain_text_as_it_is,
    h04_two_lines_are_refused_over_http_1_and_2,
    h05_length_and_form_are_checked,
    h06_the_key_is_checked_first_and_never_shown,
    h07_a_missing_key_is_refused_where_it_is_required,
    h07_a_missing_key_passes_where_it_is_optional,
    h08_the_key_may_come_from_elsewhere,
    h09_safe_methods_never_touch_the_store,
    h09_put_and_delete_opt_in,
    h10_two_principals_with_one_key_never_meet,
    h10_tenant_method_and_route_are_parts_of_the_name,
    h57_a_key_in_quotes_may_contain_spaces,
}

const STRICT: &str = "[[route]]\nmatch = 'POST /strict'\nkey_syntax = 'strict'\n";

fn h01_a_string_is_the_key_and_its_parameters_are_ignored(place: &Place) {
    let stage = place.counting(STRICT);
    for (number, path) in [(1, "/strict"), (2, "/payments")] {
        assert_fresh(&stage.post(path, r#""abc""#, BODY), number);
        for key in [r#""abc";v=1"#, r#""abc"; a="b,c"; d=?1"#, r#" "abc" "#] {
            assert_replay(&stage.post(path, key, BODY), number);
        }
    }
    // Over both versions of HTTP.
    let address = stage.gateway.address;
    let answer = http2::post(address, "/payments", &[("idempotency-key", "abc")], BODY);
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (201, "payment 2"));
    // Escapes are resolved, and written again for the service.
    assert_fresh(&stage.post("/strict", r#""a\"b\\c""#, BODY), 3);
    assert_eq!(stage.service.heard(3).header("idempotency-key"), Some(r#""a\"b\\c""#));
}

/// All of these keys are refused, and neither the store nor the service hears of them.
fn assert_refused(stage: &Stage, path: &str, keys: &[&str]) {
    let (calls, steps) = (stage.service.calls(), stage.steps());
    for key in keys {
        assert_problem(&stage.post(path, key, BODY), 400, "key-invalid");
    }
    assert_eq!((stage.service.calls(), stage.steps()), (calls, steps));
}

fn h02_strict_refuses_everything_but_a_string(place: &Place) {
    let stage = place.counting(STRICT);
    let wrong = [
        "abc",
        "17",
        "1.5",
        "?1",
        ":YWJj:",
        r#""abc", "def""#,
        r#"("abc")"#,
        r#""abc" def"#,
        r#""abc""def""#,
        r#""abc"#,
        r#""a\bc""#,
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
    ];
    assert_refused(&stage, "/strict", &wrong);
}

fn h03_lenient_takes_plain_text_as_it_is(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("abc"), 1);
    assert_replay(&stage.pay(r#""abc""#), 1);
    for (number, key) in [(2, "17"), (3, "abc;v=1"), (4, "?1"), (5, r"a\b")] {
        assert_fresh(&stage.pay(key), number);
        assert_replay(&stage.pay(key), number);
    }
    assert_refused(&stage, "/payments", &["a,b", r#"a"b"#, r#""abc"#, "a b", "café"]);
}

fn h04_two_lines_are_refused_over_http_1_and_2(place: &Place) {
    let stage = place.counting("");
    for (first, second) in [("abc", "def"), ("abc", "abc"), ("abc", "")] {
        let lines = [("idempotency-key", first), ("x-other", "1"), ("idempotency-key", second)];
        assert_problem(&stage.ask("POST /payments", &lines, BODY), 400, "key-invalid");
        let answer = http2::post(stage.gateway.address, "/payments", &lines, BODY);
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "key-invalid"));
    }
    assert_refused(&stage, "/payments", &["abc, def", r#""abc", "def""#]);
    assert_eq!((stage.service.calls(), stage.steps()), (0, 0));
}

fn h05_length_and_form_are_checked(place: &Place) {
    let stage = place.counting(
        "[[route]]\nmatch = 'POST /short'\nkey_min = 3\nkey_max = 5\n\
         [[route]]\nmatch = 'POST /uuid'\nkey_format = 'uuid'\n\
         [[route]]\nmatch = 'POST /form'\nkey_format = 'regex:ord_[0-9]+'\n",
    );
    let (long, quotes) = ("x".repeat(255), format!("\"{}\"", r#"\""#.repeat(255)));
    assert_fresh(&stage.pay(&long), 1);
    assert_replay(&stage.pay(&long), 1);
    assert_fresh(&stage.pay(&quotes), 2);
    assert_replay(&stage.pay(&quotes), 2);
    let (over, quoted) = ("x".repeat(256), format!("\"{}\"", "x".repeat(256)));
    assert_refused(&stage, "/payments", &["", r#""""#, &over, &quoted]);
    assert_fresh(&stage.post("/short", "abc", BODY), 3);
    assert_refused(&stage, "/short", &["ab", "abcdef", r#""ab""#]);
    assert_fresh(&stage.post("/uuid", "8e03978e-40d5-43dd-bc93-6894a57f9324", BODY), 4);
    assert_refused(&stage, "/uuid", &["abc", "8e03978e-40d5-43dd-bc93"]);
    assert_fresh(&stage.post("/form", "ord_17", BODY), 5);
    assert_refused(&stage, "/form", &["17", "ord_", "ord_17x"]);
}

fn h06_the_key_is_checked_first_and_never_shown(place: &Place) {
    let stage = place.counting("log.level = 'debug'\n");
    let refused = stage.pay("sk-live-secret,");
    assert_problem(&refused, 400, "key-invalid");
    assert_eq!(stage.steps(), 0, "nothing is looked up");
    stage.pay("sk-live-secret");
    stage.pay("sk-live-secret");
    let log = stage.gateway.log_up_to("replayed");
    assert!(log.iter().all(|line| !line.contains("sk-live")), "{log:#?}");
    assert!(log.last().unwrap().contains("Key(#"), "{log:#?}");
    let metrics = stage.metrics();
    assert!(!metrics.contains("sk-live"), "{metrics}");
    assert!(!refused.text().contains("sk-live"), "{}", refused.text());
}

/// A payment without a key.
fn without_key(stage: &Stage) -> crate::support::upstream::Message {
    stage.ask("POST /payments", &[], BODY)
}

fn h07_a_missing_key_is_refused_where_it_is_required(place: &Place) {
    let stage = place.counting("[defaults]\nkey = 'required'\n");
    let answer = without_key(&stage);
    assert_problem(&answer, 400, "key-missing");
    let page = answer.json()["type"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("link").unwrap(), format!("<{page}>; rel=\"describedby\""));
    let page = Call::get(stage.gateway.address, &page);
    assert!(page.text().starts_with("# key-missing"), "{}", page.text());
    assert_eq!((stage.service.calls(), stage.steps()), (0, 0));
}

fn h07_a_missing_key_passes_where_it_is_optional(place: &Place) {
    let stage = place.counting("");
    for number in [1, 2] {
        let answer = without_key(&stage);
        assert_fresh(&answer, number);
        assert_eq!(answer.header("idempotency-status"), Some("unprotected"));
    }
    assert_eq!(stage.steps(), 0);
    let count = r#"requests_total{route="default",status="unprotected",duplicate="false"} 2"#;
    let metrics = stage.metrics();
    assert!(metrics.contains(count), "{metrics}");
}

fn h08_the_key_may_come_from_elsewhere(place: &Place) {
    let stage = place.counting(
        "[[route]]\nmatch = 'POST /header'\nkey = 'header:request-id'\n\
         [[route]]\nmatch = 'POST /json'\nkey = 'json:/order/id'\n\
         [[route]]\nmatch = 'POST /query'\nkey = 'query:id'\n\
         [[route]]\nmatch = 'POST /content'\nkey = 'content'\n",
    );
    let by = |id| stage.ask("POST /header", &[("request-id", id)], BODY);
    assert_fresh(&by("a"), 1);
    assert_replay(&by("\"a\""), 1);
    assert_eq!(stage.service.heard(1).header("idempotency-key"), Some("a"));

    let of = |body: &str| stage.ask("POST /json", &[], body);
    assert_fresh(&of(r#"{"order":{"id":"7"}}"#), 2);
    assert_problem(&of(r#"{"order":{"id":7}}"#), 422, "key-mismatch");
    assert_replay(&of(r#"{ "order" : {"id":"7"} }"#), 2);
    assert_problem(&of(r#"{"order":{}}"#), 400, "key-missing");
    assert_problem(&of(r#"{"order":{"id":{}}}"#), 400, "key-invalid");

    let at = |query: &str| stage.ask(&format!("POST /query?{query}"), &[], BODY);
    assert_fresh(&at("id=a%2Db"), 3);
    assert_replay(&at("id=a%2Db"), 3);
    assert_problem(&at("id=a&id=b"), 400, "key-invalid");

    let with = |body: &str| stage.ask("POST /content", &[], body);
    assert_fresh(&with(r#"{"a":1,"b":2}"#), 4);
    assert_replay(&with(r#"{ "b": 2, "a": 1 }"#), 4);
    assert_fresh(&with(r#"{"a":1,"b":3}"#), 5);
}

fn h09_safe_methods_never_touch_the_store(place: &Place) {
    let stage = place.counting("[defaults]\nkey = 'required'\n");
    for headers in [&[][..], &[("idempotency-key", "abc")]] {
        for method in ["GET", "OPTIONS", "TRACE"] {
            let answer = stage.ask(&format!("{method} /payments"), headers, "");
            assert_fresh(&answer, stage.service.calls());
            let heard = stage.service.heard(stage.service.calls());
            assert_eq!(heard.header("idempotency-fence"), None, "{method}");
        }
    }
    assert_eq!((stage.service.calls(), stage.steps()), (6, 0));
}

fn h09_put_and_delete_opt_in(place: &Place) {
    let stage = place.counting("[[route]]\nmatch = 'PUT,DELETE /in'\n");
    let twice = |request: &str| {
        let before = stage.service.calls();
        for _ in 0..2 {
            assert_eq!(stage.ask(request, &[("idempotency-key", "abc")], BODY).status(), 201);
        }
        stage.service.calls() - before
    };
    for request in ["POST /a", "PATCH /a", "PUT /in", "DELETE /in"] {
        assert_eq!(twice(request), 1, "{request}");
    }
    for request in ["PUT /a", "DELETE /a"] {
        assert_eq!(twice(request), 2, "{request}");
    }
}

fn h10_two_principals_with_one_key_never_meet(place: &Place) {
    let stage = place.counting("");
    let callers: [&[(&str, &str)]; 5] = [
        &[],
        &[("authorization", "")],
        &[("authorization", "Bearer a")],
        &[("authorization", "Bearer b")],
        &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ];
    let pay = |caller: &[(&str, &str)]| {
        stage.ask("POST /payments", &[&[("idempotency-key", "abc")], caller].concat(), BODY)
    };
    for (number, caller) in callers.iter().enumerate() {
        assert_fresh(&pay(caller), number + 1);
    }
    for (number, caller) in callers.iter().enumerate() {
        assert_replay(&pay(caller), number + 1);
    }
}

fn h10_tenant_method_and_route_are_parts_of_the_name(place: &Place) {
    let stage = place.counting(
        "[[route]]\nmatch = 'POST,PATCH /a'\n\
         scope = ['tenant:header:x-tenant', 'header:authorization']\n\
         [[route]]\nmatch = 'POST /{other}'\n\
         scope = ['tenant:header:x-tenant', 'header:authorization']\n",
    );
    let all = [
        ("POST /a", "t", "p", "k"),
        ("PATCH /a", "t", "p", "k"),
        ("POST /b", "t", "p", "k"),
        ("POST /a", "u", "p", "k"),
        ("POST /a", "t", "q", "k"),
        ("POST /a", "t", "p", "l"),
        // Parts cannot be shifted into each other.
        ("POST /a", "tp", "", "k"),
        ("POST /a", "", "tp", "k"),
    ];
    let ask = |(request, tenant, principal, key)| {
        let headers =
            [("x-tenant", tenant), ("authorization", principal), ("idempotency-key", key)];
        stage.ask(request, &headers, BODY)
    };
    for (number, one) in all.into_iter().enumerate() {
        assert_fresh(&ask(one), number + 1);
    }
    for (number, one) in all.into_iter().enumerate() {
        assert_replay(&ask(one), number + 1);
    }
}

fn h57_a_key_in_quotes_may_contain_spaces(place: &Place) {
    let stage = place.counting(STRICT);
    let keys = [r#""order 17""#, r#"" order 17""#, r#""order 17 ""#, r#""order  17""#];
    for (number, key) in keys.iter().enumerate() {
        for path in ["/strict", "/payments"] {
            let count = stage.service.calls() + 1;
            assert_fresh(&stage.post(path, key, BODY), count);
            assert_replay(&stage.post(path, &format!("{key};v=1"), BODY), count);
            assert_eq!(stage.service.heard(count).header("idempotency-key"), Some(*key));
        }
        // Over the other version of HTTP it is the same key.
        let headers = [("idempotency-key", *key)];
        let answer = http2::post(stage.gateway.address, "/payments", &headers, BODY);
        assert!(answer.is_replay() && answer.text() == format!("payment {}", 2 * number + 2));
    }
    assert_eq!(stage.state("order%2017"), "completed");
    assert_refused(&stage, "/payments", &["order 17", r#"order "17""#]);
    // What would be trimmed on its way to a terminal is in quotes there.
    let admin = format!("http://{}", stage.gateway.admin);
    let list = justonce().args(["keys", "list", "--admin", &admin]).output().unwrap();
    let rows = String::from_utf8(list.stdout).unwrap();
    for key in keys {
        assert!(rows.contains(key), "{key}: {rows}");
    }
}
