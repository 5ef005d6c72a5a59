//! `justonce keys`: the real program against a real gateway.

use std::process::{Command, Output};

use justonce_testbed::free_port;
use serde_json::json;

use super::stage::Stage;
use crate::gateway::stage::BODY;
use crate::support::client::{pay_patiently, state};
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::Upstream;

fn keys(admin: &str, more: &[&str]) -> Output {
    command(admin, more).output().unwrap()
}

fn command(admin: &str, more: &[&str]) -> Command {
    let mut command = justonce();
    command.env("USER", "ann").arg("keys").args(more).args(["--admin", admin]);
    command
}

fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(output: &Output) -> (i32, String) {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    (output.status.code().unwrap(), errors)
}

#[test]
fn an_operation_killed_in_the_middle_is_found_and_completed() {
    let (stage, heard) = Stage::new().killed_during("order-17");
    let later = pay_patiently(stage.gateway.address, "order-17", BODY);
    assert_eq!(later.code(), "outcome-unknown");
    let admin = format!("http://{}", stage.gateway.admin);
    let list = printed(&keys(&admin, &["list", "--state", "unknown"]));
    let short = &heard.record[..16];
    for text in [short, "order-17", "route=payments", &heard.fence.to_string()] {
        assert!(list.contains(text), "{text} is missing in\n{list}");
    }
    let show = printed(&keys(&admin, &["show", short]));
    for text in [&*heard.record, "unknown because", "lapsed", "claimed", "held"] {
        assert!(show.contains(text), "{text} is missing in\n{show}");
    }
    let fence = heard.fence.to_string();
    let body = stage.home.path().join("answer.json");
    std::fs::write(&body, r#"{"paid":5}"#).unwrap();
    let done = printed(&keys(
        &admin,
        &[
            "complete",
            short,
            "--fence",
            &fence,
            "--why",
            "receipt 4711",
            "--status",
            "201",
            "--header",
            "content-type: application/json",
            "--body-file",
            body.to_str().unwrap(),
        ],
    ));
    assert!(done.contains(&heard.record) && done.contains("completed"), "{done}");
    let replay = stage.pay("order-17");
    assert_eq!((replay.status(), replay.text().as_str()), (201, r#"{"paid":5}"#));
    assert_eq!(replay.header("content-type"), Some("application/json"));
    assert_eq!(stage.resolutions(&heard), ["operator ann completed: receipt 4711"]);
    let show = printed(&keys(&admin, &["show", short]));
    assert!(show.contains("operator ann") && show.contains("receipt 4711"), "{show}");
    assert!(!show.contains("paid\""), "no contents unless asked for: {show}");
    assert!(printed(&keys(&admin, &["show", short, "--contents"])).contains(r#"{"paid":5}"#));
    assert!(stage.upstream.is_left_alone(), "the service was asked again");
}

#[test]
fn released_and_refused_in_words_and_codes() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    let admin = stage.gateway.admin.to_string();
    let (id, fence) = (heard.record.as_str(), heard.fence.to_string());
    let old = (heard.fence + 7).to_string();
    let refused = keys(&admin, &["release", id, "--fence", &old, "--why", "w", "--by", "bob"]);
    let (code, error) = complaint(&refused);
    assert!(code == 3 && error.contains("fence-old"), "{code} {error}");
    let without = keys(&admin, &["release", id, "--fence", &fence]);
    assert_eq!(complaint(&without).0, 2, "a reason is needed");
    let output = keys(
        &admin,
        &["release", id, "--fence", &fence, "--why", "not in the books", "--by", "bob", "--json"],
    );
    let said: serde_json::Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!((&said["resolved"], &said["by"]), (&"released".into(), &"bob".into()));
    assert_eq!(state(stage.gateway.address, "k"), "released", "free for the next request");
    let twice = keys(
        &admin,
        &["complete", id, "--fence", &fence, "--why", "w", "--status", "200", "--by", "bob"],
    );
    let (code, error) = complaint(&twice);
    assert!(code == 3 && error.contains("not-unknown") && error.contains("released"), "{error}");
    let (code, error) = complaint(&keys(&admin, &["show", "0000000000"]));
    assert!(code == 3 && error.contains("record-not-found"), "{code} {error}");
    let (code, error) = complaint(&keys(&admin, &["list", "--state", "odd"]));
    assert!(code == 2 && error.contains("in_progress"), "{code} {error}");
    let page: serde_json::Value =
        serde_json::from_str(&printed(&keys(&admin, &["list", "--json"]))).unwrap();
    assert_eq!(page["keys"][0]["key"], "k");
    assert!(printed(&keys(&admin, &["list", "--prefix", "z"])).contains("no such records"));
}

#[test]
fn the_admin_is_found_with_its_token_or_the_way_is_told() {
    let nobody = format!("http://127.0.0.1:{}", free_port().unwrap());
    let (code, error) = complaint(&keys(&nobody, &["list"]));
    assert!(code == 1 && error.contains("cannot reach the gateway's admin API"), "{error}");
    assert!(error.to_lowercase().contains("refused"), "it says why: {error}");
    let (code, error) = complaint(&keys("https://127.0.0.1:1", &["list"]));
    assert!(code == 1 && error.contains("no TLS"), "{error}");
    let stage = Stage::new();
    let mut serve = stage.home.command();
    let data = stage.home.path().join("other");
    serve.args(["--store", &format!("file:{}", data.display())]);
    serve.args(["--set", "admin_token=s3cret-token-of-operators"]);
    let closed = Gateway::start(serve).unwrap();
    let admin = closed.admin.to_string();
    let (code, error) = complaint(&keys(&admin, &["list"]));
    assert!(code == 1 && error.contains("JUSTONCE_ADMIN_TOKEN"), "{error}");
    printed(&keys(&admin, &["list", "--token", "s3cret-token-of-operators"]));
    let file = stage.home.path().join("token");
    std::fs::write(&file, "s3cret-token-of-operators\n").unwrap();
    printed(&keys(&admin, &["list", "--token-file", file.to_str().unwrap()]));
    let mut with_variable = command(&admin, &["list"]);
    with_variable.env("JUSTONCE_ADMIN_TOKEN", "s3cret-token-of-operators");
    printed(&with_variable.output().unwrap());
}

#[test]
fn an_answer_that_says_nothing_is_refused_with_what_to_say() {
    let stage = Stage::new();
    let heard = stage.unknown("order-17");
    let admin = format!("http://{}", stage.gateway.admin);
    let fence = heard.fence.to_string();
    let record = &*heard.record;
    let args = |how| [how, record, "--fence", &*fence, "--why", "receipt 4711"];
    for how in ["complete", "fail"] {
        let (code, said) = complaint(&keys(&admin, &args(how)));
        assert_eq!(code, 2, "{said}");
        for flag in ["--status", "--body", "--body-file"] {
            assert!(said.contains(flag), "{flag} is missing in {said}");
        }
        let said = json!({ "fence": heard.fence, "by": "ann", "why": "books", "outcome": {} });
        let refused = stage.post(&format!("/keys/{}/{how}", heard.record), &said);
        assert_eq!((refused.status(), refused.code().as_str()), (400, "request-invalid"));
        assert!(refused.text().contains("`status`"), "{}", refused.text());
    }
    assert_eq!(stage.pay("order-17").code(), "outcome-unknown", "nothing was resolved");
    let done = keys(&admin, &[&args("complete")[..], &["--status", "204"]].concat());
    assert!(done.status.success(), "{}", complaint(&done).1);
    assert_eq!(stage.pay("order-17").status(), 204);
}

#[test]
fn one_variable_says_where_the_gateway_listens_and_where_the_command_line_connects() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let port = free_port().unwrap();
    for value in [format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}")] {
        let mut serve = home.command();
        serve.env("JUSTONCE_ADMIN", &value);
        let gateway = Gateway::start(serve).unwrap_or_else(|why| panic!("{value}: {why}"));
        assert_eq!(gateway.admin.port(), port);
        let mut list = justonce();
        let output = list.env("JUSTONCE_ADMIN", &value).args(["keys", "list"]).output().unwrap();
        assert_eq!(printed(&output), "There are no such records.\n", "{value}");
    }
    // All addresses of the machine: the command line on the same machine finds it too.
    let everywhere = format!("0.0.0.0:{port}");
    let mut serve = home.command();
    serve.env("JUSTONCE_ADMIN", &everywhere).env("JUSTONCE_ADMIN_TOKEN", "token-of-operators-17");
    let _gateway = Gateway::start(serve).unwrap();
    let mut list = justonce();
    list.env("JUSTONCE_ADMIN", &everywhere).env("JUSTONCE_ADMIN_TOKEN", "token-of-operators-17");
    assert_eq!(
        printed(&list.args(["keys", "list"]).output().unwrap()),
        "There are no such records.\n"
    );
}
