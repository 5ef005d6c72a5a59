//! The configuration: what the sources are worth, and what comes out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use http::HeaderName;
use justonce_config::{
    self as config, AdminToken, BodyMode, ConfigError, Flags, JsonFields, KeyFormat, KeySettings,
    KeySource, KeySyntax, Location, ResponseEffect, ResponseSet, RouteSettings, ScopePart,
    ServerUrl, Settings, StatusRule, StatusSet, StoreUrl, WhenBusy, WhenStoreDown,
};
use justonce_core::store::{NEAR_AGE, NEAR_BYTES};
use justonce_core::{AfterRetention, OnLapsed};
use justonce_http::GrpcStatus;
use proptest::prelude::*;

const UPSTREAM: &str = "upstream = 'http://127.0.0.1:9000'\n";

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn flags(words: &[&str]) -> Flags {
    let words = ["justonce"].iter().chain(words);
    Cli::try_parse_from(words).expect("flags that clap knows").flags
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with(file: &str, pairs: &[(&str, &str)], words: &[&str]) -> Result<Settings, ConfigError> {
    config::parse_with(Some(("a.toml", file)), &variables(pairs), &flags(words))
}

fn right(text: &str) -> Settings {
    config::parse(&format!("{UPSTREAM}{text}"), "a.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn route(text: &str) -> RouteSettings {
    right(&format!("[[route]]\nmatch = 'POST /a'\n{text}")).routes.remove(0)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn port(settings: &Settings) -> u16 {
    settings.listen.ip().expect("an IP address").port()
}

#[test]
fn later_sources_are_stronger() {
    let file = "upstream = 'http://file:1'\nlisten = '127.0.0.1:1'\ngrace = '1s'\n";
    let settings = with(file, &[], &[]).unwrap();
    assert_eq!((port(&settings), settings.grace), (1, seconds(1)));

    let env = [("JUSTONCE_LISTEN", "127.0.0.1:2"), ("JUSTONCE_UPSTREAM", "http://a:1, http://b:1")];
    let settings = with(file, &env, &[]).unwrap();
    assert_eq!((port(&settings), settings.grace), (2, seconds(1)));
    assert_eq!(settings.upstreams[0].urls, ["http://a:1", "http://b:1"]);

    let words = ["--listen", "127.0.0.1:3", "--upstream", "http://c:1", "--upstream", "http://d:1"];
    let settings = with(file, &env, &words).unwrap();
    assert_eq!(port(&settings), 3);
    assert_eq!(settings.upstreams[0].urls, ["http://c:1", "http://d:1"]);
}

#[test]
fn every_kind_of_value_can_be_set_by_variables_and_flags() {
    let env = [
        ("JUSTONCE_LIMITS_WAITERS", "7"),
        ("JUSTONCE_BREAKER_ENABLED", "false"),
        ("JUSTONCE_DEFAULTS_STORE_STATUS_5XX", "keep"),
        ("JUSTONCE_DEFAULTS_SCOPE", "header:x-a, tenant:header:x-b"),
        ("JUSTONCE_DEFAULTS_FINGERPRINT_BODY", "raw"),
        ("JUSTONCE_CONFIG", "not read here"),
        ("PATH", "not ours"),
    ];
    let words = [
        "--set",
        "defaults.retention = 72h",
        "--set",
        "defaults.drop_headers=['x-a', 'x-b']",
        "--set",
        "limits={ connections = 5 }",
        "--set",
        "defaults.store_status.404=release",
        "--admin",
        "off",
        "--store",
        "memory:",
    ];
    let settings = with(UPSTREAM, &env, &words).unwrap();
    let route = &settings.default_route;
    assert_eq!(settings.breaker, None);
    assert_eq!((settings.admin, &settings.store), (None, &StoreUrl::Memory));
    assert_eq!(route.policy.retention(), seconds(72 * 3600));
    assert_eq!(route.scope.len(), 2);
    assert_eq!(route.fingerprint.body, BodyMode::Raw);
    assert_eq!(route.drop_headers, ["x-a", "x-b"].map(HeaderName::from_static));
    let rules = [
        (StatusSet::Class(5), ResponseEffect::Final),
        (StatusSet::Code(404), ResponseEffect::NotExecuted),
    ];
    let rule = |(of, then)| StatusRule { of: ResponseSet::Http(of), then };
    assert_eq!(route.store_status, rules.map(rule));
    // The table in the flag took the place of the whole table.
    assert_eq!((settings.limits.connections, settings.limits.waiters), (5, 10_000));
}

#[test]
fn complaints_name_the_source_of_the_wrong_value() {
    let env = [
        ("JUSTONCE_LISTEN", "here"),
        ("JUSTONCE_DEFAULTS_RETENTOIN", "1h"),
        ("JUSTONCE_LIMITS_WAITERS", "many"),
    ];
    let words = ["--store", "mysql://a", "--set", "defaults.lease=1", "--set", "default.lease=1s"];
    let error = with(UPSTREAM, &env, &words).unwrap_err().to_string();
    for expected in [
        "variable JUSTONCE_LISTEN: `listen`: expected an address and a port",
        "variable JUSTONCE_DEFAULTS_RETENTOIN: there is no such setting\n  \
         did you mean `JUSTONCE_DEFAULTS_RETENTION`?",
        "variable JUSTONCE_LIMITS_WAITERS: `limits.waiters`: expected a whole number",
        "flag --store: `store`: expected `memory:`, `file:PATH`, `redis://…`",
        "flag --set defaults.lease: `lease`: a duration needs a unit",
        "flag --set default.lease: unknown setting `default`\n  did you mean `defaults`?",
    ] {
        assert!(error.contains(expected), "{expected}\nis not in\n{error}");
    }
}

#[test]
fn flags_that_set_nothing_are_refused() {
    for (word, expected) in [
        ("defaults.lease", "expected a name, `=` and a value"),
        ("route.match=POST /", "routes are set in the file only"),
        ("upstream=[", "this is not TOML"),
        ("limits=5", "expected a table"),
    ] {
        let error = with(UPSTREAM, &[], &["--set", word]).unwrap_err().to_string();
        assert!(error.contains(expected), "{word}: {error}");
    }
}

#[test]
fn without_a_file_the_flags_are_enough() {
    let none = BTreeMap::new();
    let settings = config::load(&flags(&["--upstream", "http://a:1/"]), &none).unwrap();
    assert_eq!(settings.upstreams[0].urls, ["http://a:1"]);
    let error = config::load(&flags(&[]), &none).unwrap_err();
    assert_eq!(error.mistakes()[0].location, Location::Nowhere);
    assert!(error.to_string().contains("there is no upstream"));
}

#[test]
fn the_file_is_found_by_flag_or_variable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, format!("{UPSTREAM}listen = '127.0.0.1:1'")).unwrap();
    let path = path.to_str().unwrap();
    let by_flag = config::load(&flags(&["--config", path]), &BTreeMap::new()).unwrap();
    let by_variable = config::load(&flags(&[]), &variables(&[("JUSTONCE_CONFIG", path)])).unwrap();
    assert_eq!(port(&by_flag), 1);
    assert_eq!(by_flag, by_variable);

    let missing = folder.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    let error = config::load(&flags(&["--config", missing]), &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().starts_with("flag --config: cannot read "), "{error}");
}

#[test]
fn keys_come_from_where_they_are_said_to() {
    let key = |text: &str| route(text).key;
    let standard = KeySource::Header(HeaderName::from_static("idempotency-key"));
    let default = KeySettings {
        source: standard.clone(),
        required: false,
        syntax: KeySyntax::Lenient,
        min: 1,
        max: 255,
        format: KeyFormat::Any,
    };
    assert_eq!(key(""), Some(default.clone()));
    assert_eq!(key("key = 'required'"), Some(KeySettings { required: true, ..default }));
    assert_eq!(key("key = 'off'"), None);
    let source = |text: &str| key(text).map(|key| (key.source, key.required));
    let header = KeySource::Header(HeaderName::from_static("paypal-request-id"));
    assert_eq!(source("key = 'header:PayPal-Request-Id'"), Some((header.clone(), true)));
    let optional = "key = 'header:PayPal-Request-Id'\nkey_presence = 'optional'";
    assert_eq!(source(optional), Some((header, false)));
    assert_eq!(source("key = 'query:id'"), Some((KeySource::Query("id".into()), true)));
    assert_eq!(source("key = 'content'"), Some((KeySource::Content, true)));
    assert_eq!(source("key_presence = 'required'"), Some((standard, true)));
    let regex = key("key_format = 'regex:ord_[0-9]+'\nkey_max = 20").unwrap();
    assert_eq!((regex.format, regex.max), (KeyFormat::Regex("ord_[0-9]+".into()), 20));
}

#[test]
fn a_route_counts_more_than_the_defaults_entry_by_entry() {
    let settings = right(
        "[defaults]
        key = 'header:x-id'
        key_presence = 'optional'
        scope = ['header:x-a']
        fingerprint = { body = 'json', ignore = ['/a'], headers = ['x-h'] }
        store_status = { 5xx = 'keep', 404 = 'release' }
        drop_headers = ['x-drop', 'x-both']
        on_lapsed = 'rerun'
        [[route]]
        match = 'POST /a'
        key = 'required'
        scope = ['tenant:header:x-b']
        fingerprint = { only = ['/b'] }
        store_status = { 5xx = 'unknown', 409 = 'release', ABORTED = 'release' }
        keep_headers = ['x-both']
        [[route]]
        match = 'POST /b'
        fingerprint = { body = 'raw' }",
    );
    let [one, two] = &settings.routes[..] else { panic!("two routes") };
    assert!(one.key.as_ref().is_some_and(|key| key.required));
    assert_eq!(one.scope, [ScopePart::Tenant(HeaderName::from_static("x-b"))]);
    let places = vec![justonce_core::JsonPointer::parse("/b").unwrap()];
    assert_eq!(one.fingerprint.body, BodyMode::Json(JsonFields::Only(places)));
    assert_eq!(one.fingerprint.headers, [HeaderName::from_static("x-h")]);
    let rule = |of, then| StatusRule { of: ResponseSet::Http(of), then };
    assert_eq!(
        one.store_status,
        [
            rule(StatusSet::Class(5), ResponseEffect::Unknown),
            rule(StatusSet::Code(404), ResponseEffect::NotExecuted),
            rule(StatusSet::Code(409), ResponseEffect::NotExecuted),
            StatusRule {
                of: ResponseSet::Grpc(GrpcStatus::Aborted),
                then: ResponseEffect::NotExecuted,
            },
        ]
    );
    assert_eq!(one.drop_headers, [HeaderName::from_static("x-drop")]);
    assert_eq!(one.policy.on_lapsed(), OnLapsed::Rerun);

    assert!(two.key.as_ref().is_some_and(|key| !key.required));
    assert_eq!(two.scope, [ScopePart::Principal(HeaderName::from_static("x-a"))]);
    assert_eq!(two.fingerprint.body, BodyMode::Raw);
    assert_eq!(two.drop_headers.len(), 2);
}

#[test]
fn promises_are_read_as_they_are_written() {
    let route = route(
        "on_concurrent = 'wait 45s'
        on_store_down = 'pass'
        lease = '10s'
        lease_cap = '20m'
        response_timeout = '18m'
        retention = '72h'
        after_retention = 'refuse 90d'
        request_body = '16MB'
        stored_response_body = 100",
    );
    assert_eq!(route.when_busy, WhenBusy::Wait(seconds(45)));
    assert_eq!(route.max_wait, seconds(45));
    assert_eq!(route.on_store_down, WhenStoreDown::Pass);
    assert_eq!(route.policy.lease(), seconds(10));
    assert_eq!(route.policy.lease_cap(), seconds(1200));
    assert_eq!(route.response_timeout, seconds(1080));
    assert_eq!(route.policy.retention(), seconds(72 * 3600));
    assert_eq!(route.policy.after_retention(), AfterRetention::Refuse(seconds(90 * 86_400)));
    assert_eq!((route.request_body, route.stored_response_body), (16_000_000, 100));
}

#[test]
fn limits_and_timeouts_hold_for_routes_that_say_nothing() {
    let settings = right(
        "limits = { request_body = '2MB', stored_response_body = '1MB' }
        timeouts = { response = '7s' }
        [[route]]
        match = 'POST /a'
        request_body = 5",
    );
    let rest = &settings.default_route;
    assert_eq!((rest.request_body, rest.stored_response_body), (2_000_000, 1_000_000));
    assert_eq!((settings.routes[0].request_body, rest.response_timeout), (5, seconds(7)));
    assert_eq!(settings.timeouts.response, seconds(7));
}

#[test]
fn every_kind_of_store_has_an_address() {
    let store = |text: &str| right(&format!("store = '{text}'")).store;
    assert_eq!(store("memory:"), StoreUrl::Memory);
    assert_eq!(store("file:data"), StoreUrl::File(PathBuf::from("data")));
    assert_eq!(store("file:///var/data"), StoreUrl::File(PathBuf::from("/var/data")));
    let at = |url: &str| ServerUrl::new(url);
    for url in ["redis://h", "redis-cluster://h:1,h:2", "redis-sentinel://h:1,h:2/main"] {
        let with_tls = url.replace("redis", "rediss");
        assert_eq!(store(url), StoreUrl::Redis(at(url)));
        assert_eq!(store(&with_tls), StoreUrl::Redis(at(&with_tls)));
    }
    for url in ["postgres://h/db", "postgresql://u:p@h:5432/db", "postgres:///db?host=/run/pg"] {
        assert_eq!(store(url), StoreUrl::Postgres(at(url)));
    }
    let (redis, postgres) = (at("redis-cluster://h:1,h:2"), at("postgres://u@h/db"));
    let tiered = store("tiered:redis-cluster://h:1,h:2,postgres://u@h/db");
    assert_eq!(tiered, StoreUrl::Tiered { redis, postgres });
}

#[test]
fn wrong_addresses_of_stores_are_refused_without_their_passwords() {
    for (url, expected) in [
        ("etcd://h", "not supported yet by this build"),
        ("redis://", "expected a host"),
        ("redis://:s3cr3t@", "expected a host"),
        ("postgres:h", "expected a host"),
        ("tiered:redis://h", "expected Redis, a comma and PostgreSQL"),
        ("tiered:postgres://u:s3cr3t@h,redis://h", "expected Redis, a comma and PostgreSQL"),
        ("reddis://h", "did you mean `redis`?"),
    ] {
        let text = format!("{UPSTREAM}store = '{url}'");
        let error = config::parse(&text, "a.toml").unwrap_err();
        let told = error.mistakes().iter().map(ToString::to_string).collect::<String>();
        assert!(told.contains(expected), "{url}: {told}");
        assert!(!told.contains("s3cr3t"), "{told}");
    }
}

#[test]
fn stores_over_a_network_have_settings_of_their_own() {
    let settings = right("").stores;
    assert_eq!(settings.timeout, Duration::from_secs(5));
    assert_eq!((settings.redis.prefix.as_str(), settings.redis.wait_replicas), ("justonce", 0));
    assert_eq!(settings.redis.ca, None);
    assert_eq!((settings.postgres.connections, settings.postgres.migrate), (16, true));
    let near = settings.near_cache.unwrap();
    // As in the library.
    assert_eq!((u64::try_from(near.bytes).unwrap(), near.age), (NEAR_BYTES, NEAR_AGE));
    let settings = right(
        "timeouts = { store = '2s' }
         redis = { prefix = 'shop', ca = 'ca.pem', wait_replicas = 1, wait_timeout = '200ms' }
         postgres = { schema = 'once', connections = 4, migrate = false }
         near_cache = { enabled = false }",
    )
    .stores;
    assert_eq!(settings.timeout, Duration::from_secs(2));
    assert_eq!((settings.redis.prefix.as_str(), settings.redis.wait_replicas), ("shop", 1));
    assert_eq!(settings.redis.ca, Some(PathBuf::from("ca.pem")));
    assert_eq!((settings.postgres.connections, settings.postgres.migrate), (4, false));
    assert_eq!(settings.near_cache, None);
    let wrong = config::parse(&format!("{UPSTREAM}redis = {{ prefix = 'a b' }}"), "a.toml");
    assert!(wrong.unwrap_err().to_string().contains("small letters"));
}

#[test]
fn the_admin_address_needs_a_token_off_loopback() {
    let open = "admin = '0.0.0.0:8081'";
    let error = config::parse(&format!("{UPSTREAM}{open}"), "a.toml").unwrap_err().to_string();
    assert!(error.contains("there is no token"), "{error}");
    let settings = right(&format!("{open}\nadmin_token = 'abcdefghijklmnopq'"));
    let token = settings.admin_token.as_ref().unwrap();
    assert_eq!(token.read().unwrap().reveal(), "abcdefghijklmnopq");
    assert!(!format!("{settings:?}").contains("abcdefghijklmnopq"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let file = AdminToken::File(path.clone());
    assert!(file.read().is_err());
    std::fs::write(&path, " \n").unwrap();
    assert!(file.read().is_err());
    std::fs::write(&path, "abc\n").unwrap();
    assert_eq!(file.read().unwrap().reveal(), "abc");
}

#[test]
fn what_only_a_restart_can_change_is_told() {
    let old = right("");
    let routes = right("[[route]]\nmatch = 'POST /a'\n[defaults]\nlease = '10s'");
    assert_eq!(old.changed_for_restart(&routes), [""; 0]);
    let new = right("listen = '127.0.0.1:1'\nlimits = { waiters = 1 }");
    assert_eq!(old.changed_for_restart(&new), ["listen", "limits"]);
}

#[test]
fn a_thousand_routes_are_read_and_explained() {
    let many: String = (0..1000).map(|at| format!("[[route]]\nmatch = 'POST /{at}/*'\n")).collect();
    let settings = right(&many);
    assert_eq!(settings.routes.len(), 1000);
    assert_eq!(config::warnings(&settings), []);
    assert!(config::explain(&settings).contains("Route POST /999/*"));
}

#[test]
fn huge_files_and_too_many_routes_are_refused() {
    let long = format!("#{}", " ".repeat(5 * 1024 * 1024));
    assert!(config::parse(&long, "a.toml").unwrap_err().to_string().contains("longer than"));
    let many: String = (0..1001).map(|at| format!("[[route]]\nmatch = 'POST /{at}'\n")).collect();
    let error = config::parse(&format!("{UPSTREAM}{many}"), "a.toml").unwrap_err();
    assert!(error.to_string().contains("more than 1000 routes"), "{error}");
    let many: String = (0..100_000).map(|at| format!("a{at} = 1\n")).collect();
    let error = config::parse(&many, "a.toml").unwrap_err();
    assert_eq!(error.mistakes().len(), 200);
    assert!(error.to_string().ends_with("and 150 more"));
}

/// Lines that are nearly right: names and values of settings, put together by chance.
fn nearly() -> impl Strategy<Value = String> {
    let names = config::documented_keys();
    let name = prop_oneof![
        proptest::sample::select(names.clone()),
        proptest::sample::select(names)
            .prop_map(|name| { name.rsplit('.').next().unwrap_or_default().to_owned() }),
        Just("[[route]]".to_owned()),
        Just("[defaults]".to_owned()),
    ];
    let value = prop_oneof![
        "'[a-z0-9:/ {}*.]{0,12}'",
        "-?[0-9]{1,25}",
        Just("true".to_owned()),
        Just("[]".to_owned()),
        Just("['a', 1]".to_owned()),
        Just("{ body = 'raw', 5xx = 'keep' }".to_owned()),
        Just("'wait 9s'".to_owned()),
        Just("'regex:(a|b)+'".to_owned()),
        Just("'POST /a/{b}/*'".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("nan".to_owned()),
    ];
    let line = (name, value).prop_map(|(name, value)| match name.starts_with('[') {
        true => name,
        false => format!("{name} = {value}"),
    });
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

/// Reads a text, and shows all there is to show about it.
fn read_and_show(text: &str) -> usize {
    match config::parse(text, "a.toml") {
        Ok(settings) => config::explain(&settings).len() + config::warnings(&settings).len(),
        Err(error) => error.to_string().len() + error.mistakes().len(),
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        prop_assert!(read_and_show(&text) > 0);
    }

    #[test]
    fn no_nearly_right_text_makes_the_reader_panic(text in nearly()) {
        let text = format!("{UPSTREAM}{text}");
        prop_assert!(read_and_show(&text) > 0);
    }

    #[test]
    fn no_variable_and_no_flag_makes_the_reader_panic(
        name in "JUSTONCE_[A-Z_5]{0,30}",
        value in any::<String>(),
        set in any::<String>(),
    ) {
        let flags = Flags { set: vec![set, format!("defaults.scope={value}")], ..Flags::default() };
        let variables = BTreeMap::from([(name, value)]);
        let read = config::parse_with(Some(("a.toml", UPSTREAM)), &variables, &flags);
        prop_assert!(read.map_or_else(|error| error.to_string().len(), |_| 1) > 0);
    }
}

#[test]
fn two_tenants_are_refused() {
    let text = "upstream = 'http://127.0.0.1:9000'\n[defaults]\n\
                scope = ['tenant:header:x-a', 'tenant:header:x-b']\n";
    let error = config::parse(text, "justonce.toml").unwrap_err().to_string();
    assert!(error.contains("justonce.toml:3:") && error.contains("one tenant"), "{error}");
}
