//! Whose tokens and certificates identify callers.

use std::path::PathBuf;
use std::time::Duration;

use justonce_config::{self as config, ClientCertificates, JwksSource, ScopePart, Settings};
use justonce_http::Claim;

const ISSUER: &str = "
    upstream = 'http://127.0.0.1:9000'
    [jwt.login]
    issuer = 'https://login.example.com'
    audience = 'shop'
    jwks = 'https://login.example.com/keys'
";

fn right(text: &str) -> Settings {
    config::parse(text, "a.toml").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn h43_an_issuer_needs_little_and_a_scope_names_any_claim() {
    let scope = "[defaults]\nscope = ['jwt:sub', 'principal:jwt:https://x/t', 'jwt:/act/sub']";
    let settings = right(&format!("{ISSUER}{scope}"));
    let [issuer] = &settings.jwt[..] else { panic!("one") };
    assert_eq!((issuer.name.as_str(), &issuer.audience[..]), ("login", &["shop".to_owned()][..]));
    assert_eq!(issuer.jwks, JwksSource::Url("https://login.example.com/keys".to_owned()));
    assert_eq!((issuer.header.as_str(), issuer.algorithms.len()), ("authorization", 9));
    assert_eq!(issuer.max_age, Duration::from_secs(24 * 3600));
    let claim = |text: &str| ScopePart::Claim(Claim::parse(text).unwrap());
    let parts = ["sub", "https://x/t", "/act/sub"].map(claim);
    assert_eq!(settings.default_route.scope, parts);
    let everybody = right(&ISSUER.replace("'shop'", "['*', 'shop']"));
    assert!(everybody.jwt[0].audience.is_empty());
    let file = right(&ISSUER.replace("https://login.example.com/keys", "/etc/keys.json"));
    assert_eq!(file.jwt[0].jwks, JwksSource::File(PathBuf::from("/etc/keys.json")));
}

#[test]
fn h43_no_password_of_an_address_is_repeated() {
    let text = ISSUER.replace("//login.example.com/keys", "//user:secret@login.example.com/keys");
    let told = config::parse(&text, "a.toml").unwrap_err();
    let told: String = told.mistakes().iter().map(|mistake| mistake.message.clone()).collect();
    assert!(told.contains("without user and password") && !told.contains("secret"), "{told}");
}

#[test]
fn h42_clients_are_asked_for_certificates_where_an_authority_is_named() {
    let tls = "upstream = 'http://a:1'\n[tls]\ncert = 'c'\nkey = 'k'\n";
    assert_eq!(right(tls).tls.unwrap().clients, None);
    let asked = right(&format!("{tls}client_ca = 'a'")).tls.unwrap();
    let clients = |is_required| ClientCertificates { ca: PathBuf::from("a"), is_required };
    assert_eq!(asked.clients, Some(clients(false)));
    let required = right(&format!("{tls}client_ca = 'a'\nclient_cert = 'required'")).tls.unwrap();
    assert_eq!(required.clients, Some(clients(true)));
}

#[test]
fn nothing_about_identity_needs_a_restart() {
    let tls = "[tls]\ncert = 'c'\nkey = 'k'\n";
    let old = right(&format!("upstream = 'http://127.0.0.1:9000'\n{tls}"));
    let new = right(&format!("{ISSUER}{tls}client_ca = 'a'\nclient_cert = 'required'"));
    assert_eq!(old.changed_for_restart(&new), [""; 0]);
}
