//! The keys of issuers while the gateway runs, and settings of issuers that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use justonce_testbed::{KeyAnswer, SigningKey, TokenAlgorithm, jwks};

use crate::gateway::contract::tokens::{Issuer, claims, pay};
use crate::gateway::contract::{Place, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::process::justonce;

#[test]
fn h43_keys_that_rotate_under_load_refuse_no_good_token() {
    let issuer = Issuer::new();
    let place = Place::embedded();
    let stage = place
        .answering(&issuer.settings("unknown_key_pause = '1s'\nrefresh = '1s'"), |_, _| {
            crate::gateway::contract::service::reply("201 Created", &[], b"paid")
        });
    let address = stage.gateway.address;
    let done = Arc::new(AtomicBool::new(false));
    let keys: Vec<SigningKey> = (0..4)
        .map(|number| SigningKey::new(&number.to_string(), TokenAlgorithm::Es256).unwrap())
        .collect();
    // A client that always has a token of the first key, which stays all the time.
    let steady = issuer.token("alice", 1);
    let load = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let mut count = 0;
            while !done.load(Ordering::SeqCst) {
                count += 1;
                let (key, bearer) = (format!("s{count}"), format!("Bearer {steady}"));
                let headers = [("idempotency-key", &*key), ("authorization", &*bearer)];
                let answer = Call::send(address, "POST /payments", &headers, BODY).answer();
                assert_eq!(answer.status(), 201, "{answer:?}");
            }
            count
        })
    };
    for (number, key) in keys.iter().enumerate() {
        issuer.server.serve(jwks(&[&issuer.key, key]));
        let token = key.token(&claims("alice", 1));
        // While the pause after the last fetch lasts, an unknown key may be refused; never taken.
        let answer = until(
            "the new key",
            || {
                let (key, bearer) = (format!("r{number}"), format!("Bearer {token}"));
                let headers = [("idempotency-key", &*key), ("authorization", &*bearer)];
                Call::send(address, "POST /payments", &headers, BODY).answer()
            },
            |answer| answer.status() != 401,
        );
        assert_eq!(answer.status(), 201, "{answer:?}");
    }
    done.store(true, Ordering::SeqCst);
    assert!(load.join().unwrap() > 0);
}

#[test]
fn h43_old_keys_count_while_the_server_of_keys_is_away() {
    let issuer = Issuer::new();
    let place = Place::embedded();
    let stage = place.counting(&issuer.settings("refresh = '1s'"));
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    let mut asked = issuer.server.asked();
    for answer in [KeyAnswer::HangUp, KeyAnswer::Document(b"{}".to_vec()), KeyAnswer::Status(404)] {
        issuer.server.answer(answer);
        issuer.server.until_asked(asked + 1).unwrap();
        asked = issuer.server.asked();
        stage.gateway.log_line("no newer keys: the old ones still count");
        assert_replay(&pay(&stage, &issuer.token("alice", 2)), 1);
    }
    let metrics = stage.metrics();
    let line = metrics.lines().find(|line| {
        line.starts_with("justonce_jwks_fetches_total") && line.contains("\"failed\"")
    });
    let count: u32 = line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(count >= 3, "{metrics}");
}

#[test]
fn h43_keys_that_are_too_old_count_no_more() {
    let issuer = Issuer::new();
    let place = Place::embedded();
    let stage = place.counting(&issuer.settings("refresh = '1s'\nmax_age = '1s'"));
    let token = issuer.token("alice", 1);
    let first = until("keys", || pay(&stage, &token), |answer| answer.status() != 503);
    assert_fresh(&first, 1);
    issuer.server.answer(KeyAnswer::Status(500));
    let refused = until("their end", || pay(&stage, &token), |answer| answer.status() != 201);
    assert_problem(&refused, 503, "identity-unavailable");
    issuer.server.serve(jwks(&[&issuer.key]));
    let again = until("keys", || pay(&stage, &token), |answer| answer.status() != 503);
    assert_replay(&again, 1);
}

#[test]
fn h43_a_file_of_keys_counts_and_a_reload_changes_issuers() {
    let issuer = Issuer::new();
    let place = Place::embedded();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    std::fs::write(&path, jwks(&[&issuer.key])).unwrap();
    let settings = |audience: &str| {
        format!(
            "[jwt.login]\nissuer = 'https://login.example.com'\naudience = '{audience}'\n\
             jwks = '{}'\n[defaults]\nscope = ['jwt:sub']\n",
            path.display()
        )
    };
    let stage = place.counting(&settings("shop"));
    assert_fresh(&pay(&stage, &issuer.token("alice", 1)), 1);
    // Other keys in the file.
    let other = SigningKey::new("b", TokenAlgorithm::EdDsa).unwrap();
    std::fs::write(path.with_extension("new"), jwks(&[&other])).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    let token = other.token(&claims("alice", 2));
    let answer = until("the new key", || pay(&stage, &token), |answer| answer.status() != 401);
    assert_replay(&answer, 1);
    assert_problem(&pay(&stage, &issuer.token("alice", 1)), 401, "credentials-invalid");
    // Another audience, by a reload.
    stage.home.configure_on(stage.service.address(), &place.url(), &settings("bank"));
    let refused = until("a reload", || pay(&stage, &token), |answer| answer.status() != 201);
    assert_eq!(refused.json()["reason"], "audience");
    // A file that cannot be used changes nothing.
    let missing = settings("shop").replace("keys.json", "no-such-keys.json");
    stage.home.configure_on(stage.service.address(), &place.url(), &missing);
    stage.gateway.log_line("the new configuration is wrong");
    assert_eq!(pay(&stage, &token).json()["reason"], "audience");
}

#[test]
fn h43_check_says_whose_tokens_count_and_what_cannot_be_used() {
    let home = crate::support::process::Home::new();
    let check = |settings: &str| {
        home.configure("127.0.0.1:1".parse().unwrap(), settings);
        let output = justonce().arg("check").arg("--config").arg(home.config()).output().unwrap();
        let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), told(&output.stdout), told(&output.stderr))
    };
    let with = |jwks: &str| {
        format!(
            "[jwt.login]\nissuer = 'https://a'\naudience = 'shop'\njwks = '{jwks}'\n\
             [defaults]\nscope = ['jwt:sub']\n"
        )
    };
    let (is_right, told, _) = check(&with("https://login.example.com/keys"));
    assert!(is_right && told.contains("Tokens login: issued by https://a"), "{told}");
    let (is_right, _, problem) = check(&with("no-such-keys.json"));
    assert!(!is_right && problem.contains("`jwt.login.jwks`: no-such-keys.json"), "{problem}");
    let (is_right, _, problem) = check("[defaults]\nscope = ['jwt:sub']\n");
    assert!(!is_right && problem.contains("write `[jwt.NAME]`"), "{problem}");
}
