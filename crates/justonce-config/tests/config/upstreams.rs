//! `[upstreams.NAME]`, and the routes that name one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use justonce_config::{
    self as config, Balance, Flags, Settings, StatusSet, UpstreamHost, UpstreamTls,
};

const NAMED: &str = "
    upstream = 'http://127.0.0.1:9000'
    [upstreams.payments]
    urls = ['https://10.0.0.7:9443', 'https://10.0.0.8:9443']
    balance = 'round-robin'
    host = 'payments.internal:8443'
    tls = { ca = 'ca.pem', cert = 'c.pem', key = 'k.pem', name = 'payments.internal' }
    [upstreams.payments.health]
    path = '/healthz?deep=1'
    interval = '1s'
    status = ['200', '4xx']
    [[route]]
    match = 'POST /payments'
    upstream = 'payments'
";

fn right(text: &str) -> Settings {
    config::parse(text, "a.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(text: &str) -> String {
    config::parse(text, "a.toml").expect_err("it is wrong").to_string()
}

#[test]
fn upstreams_have_names_and_routes_choose_one() {
    let settings = right(NAMED);
    let names: Vec<_> = settings.upstreams.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["default", "payments"]);
    let [plain, payments] = &settings.upstreams[..] else { panic!("two") };
    assert_eq!((plain.balance, &plain.host), (Balance::LeastLoaded, &UpstreamHost::Client));
    assert_eq!((&plain.tls, &plain.health), (&UpstreamTls::default(), &None));
    assert_eq!(payments.urls, ["https://10.0.0.7:9443", "https://10.0.0.8:9443"]);
    assert_eq!(payments.balance, Balance::RoundRobin);
    let name = HeaderValue::from_static("payments.internal:8443");
    assert_eq!(payments.host, UpstreamHost::Name(name));
    let tls = UpstreamTls {
        ca: Some(PathBuf::from("ca.pem")),
        identity: Some((PathBuf::from("c.pem"), PathBuf::from("k.pem"))),
        name: Some("payments.internal".to_owned()),
    };
    assert_eq!(payments.tls, tls);
    let health = payments.health.as_ref().unwrap();
    assert_eq!(
        (health.path.as_str(), health.interval),
        ("/healthz?deep=1", Duration::from_secs(1))
    );
    assert_eq!((health.unhealthy_after, health.healthy_after), (3, 2));
    assert_eq!(health.status, [StatusSet::Code(200), StatusSet::Class(4)]);
    assert_eq!(settings.routes[0].upstream, "payments");
    assert_eq!(settings.default_route.upstream, "default");
}

#[test]
fn the_default_one_has_two_spellings_and_all_sources_reach_it() {
    let short = right("upstream = 'http://a:1'");
    let long = right("[upstreams.default]\nurls = 'http://a:1'");
    assert_eq!(short.upstreams, long.upstreams);
    let variables = [
        ("JUSTONCE_UPSTREAMS_DEFAULT_URLS", "http://a:1, http://b:1"),
        ("JUSTONCE_UPSTREAMS_DEFAULT_HEALTH_PATH", "/healthz"),
    ];
    let variables: BTreeMap<String, String> =
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let flags = Flags {
        set: vec!["upstreams.default.host=upstream".into(), "upstreams.b.urls=http://c:1".into()],
        ..Flags::default()
    };
    let settings = config::parse_with(None, &variables, &flags).unwrap();
    let [first, other] = &settings.upstreams[..] else { panic!("two") };
    assert_eq!((first.urls.len(), &first.host), (2, &UpstreamHost::Upstream));
    assert_eq!(first.health.as_ref().unwrap().path, "/healthz");
    assert_eq!((other.name.as_str(), &other.urls[..]), ("b", &["http://c:1".to_owned()][..]));
    let told: Vec<_> = config::warnings(&settings).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["`upstreams.b`: no route names it, so it gets no requests"]);
}

#[test]
fn without_a_default_every_route_names_one() {
    let all = "[upstreams.a]\nurls = 'http://a:1'\n[defaults]\nupstream = 'a'";
    assert_eq!(right(all).default_route.upstream, "a");
    let rest = "[upstreams.a]\nurls = 'http://a:1'\n[[route]]\nmatch = 'POST /a'\nupstream = 'a'";
    assert!(wrong(rest).contains("there is no upstream: say where the API is"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let default = "upstream = 'http://a:1'\n";
    for (text, expected) in [
        ("[upstreams.a]\nhost = 'client'", "`upstreams.a` has no `urls`: say where it is"),
        ("[upstreams.a]\nurls = []", "`upstreams.a` has no `urls`: say where it is"),
        ("[upstreams.a]\nurls = 'http://a/b'", "`upstreams.a.urls`: an upstream has no path"),
        ("[upstreams.a]\nurls = ['http://b:1', 'http://b:1/']", "http://b:1 is listed twice"),
        ("[upstreams.'a b']\nurls = 'http://b:1'", "expected a name of up to 64 letters"),
        ("[upstreams.default]\nurls = 'http://b:1'", "`upstream` (line 1) says it, too"),
        ("[upstreams]\nurls = 'http://b:1'", "expected a table, as in `[upstreams.urls]`"),
        ("upstreams = 5", "`upstreams` is a table of tables"),
        ("[upstreams.a]\nurl = 'http://b:1'", "unknown setting `url` in [upstreams.a]"),
        ("[[route]]\nmatch = 'POST /a'\nupstream = 'b'", "there is no `[upstreams.b]`"),
        ("[[route]]\nmatch = 'POST /a'\nupstream = 'http://b:1'", "write `[upstreams.NAME]` with"),
        ("urls = 'http://b:1'", "`urls` belongs in `[upstreams.NAME]`"),
        ("[upstreams.default]\nhost = 'a@b'", "`upstreams.default.host`: expected \"client\""),
        ("[upstreams.default]\nhost = 'a/b'", "`upstreams.default.host`: expected \"client\""),
        ("[upstreams.default]\nbalance = 'random'", "expected \"least-loaded\" or \"round-robin\""),
        (
            "[upstreams.default.health]\npath = 'healthz'",
            "`upstreams.default.health.path`: expected",
        ),
        (
            "[upstreams.default.health]\nstatus = '99'",
            "`upstreams.default.health.status`: expected",
        ),
        ("[upstreams.default.tls]\nca = 'ca.pem'", "none of its addresses is `https://…`"),
        (
            "[upstreams.a]\nurls = 'https://b'\ntls = { cert = 'c' }",
            "`upstreams.a.tls` has no `key`: a certificate and its key go together",
        ),
    ] {
        let told = wrong(&format!("{default}{text}"));
        assert!(told.contains(expected), "{text}: {told}");
    }
}

#[test]
fn nothing_about_upstreams_needs_a_restart() {
    let old = right("upstream = 'http://a:1'");
    assert_eq!(old.changed_for_restart(&right(NAMED)), [""; 0]);
    let delayed = right("upstream = 'http://a:1'\ndrain_delay = '5s'");
    assert_eq!(old.changed_for_restart(&delayed), ["drain_delay"]);
}
