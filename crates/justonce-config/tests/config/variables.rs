//! Variables that look like ours and are not.

use std::collections::BTreeMap;

use justonce_config::{self as config, ConfigError, Flags, Settings};

const UPSTREAM: &str = "upstream = 'http://127.0.0.1:9000'";

fn read(pairs: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let variables: BTreeMap<String, String> = pairs.collect();
    config::parse_with(Some(("a.toml", UPSTREAM)), &variables, &Flags::default())
}

#[test]
fn service_links_of_kubernetes_are_no_settings() {
    let links = [
        ("JUSTONCE_PORT", "tcp://10.0.12.7:8080"),
        ("JUSTONCE_SERVICE_HOST", "10.0.12.7"),
        ("JUSTONCE_SERVICE_PORT", "8080"),
        ("JUSTONCE_SERVICE_PORT_HTTP_ADMIN", "8081"),
        ("JUSTONCE_PORT_8080_TCP", "tcp://10.0.12.7:8080"),
        ("JUSTONCE_PORT_8080_TCP_PROTO", "tcp"),
        ("JUSTONCE_PORT_8080_TCP_PORT", "8080"),
        ("JUSTONCE_PORT_8080_TCP_ADDR", "10.0.12.7"),
        ("JUSTONCE_PORT_53_UDP", "udp://[fd00::7]:53"),
        ("JUSTONCE_ADMIN_SERVICE_HOST", "fd00::7"),
        ("JUSTONCE_ADMIN_PORT", "tcp://10.0.12.7:8081"),
        ("JUSTONCE_ADMIN_PORT_8081_TCP_ADDR", "10.0.12.7"),
    ];
    let settings = read(&links).unwrap();
    assert_eq!(settings.ignored_variables.len(), links.len());
    // What only looks like one is a mistake, and so is a real setting with a typo.
    for (name, value) in [
        ("JUSTONCE_PORT", "8080"),
        ("JUSTONCE_PORTS", "tcp://10.0.12.7:8080"),
        ("JUSTONCE_SERVICE_HOST", "shop.example"),
        ("JUSTONCE_SERVICE_PORT", "http"),
        ("JUSTONCE_PORT_8080_TCP_ADDR", "tcp"),
        ("JUSTONCE_PORT_X_TCP", "tcp://10.0.12.7:8080"),
        ("JUSTONCE_LISTEM", "127.0.0.1:80"),
        ("JUSTONCE_LIMITS_WAITER", "10"),
    ] {
        let error = read(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name), "{name}={value}: {error}");
    }
}
