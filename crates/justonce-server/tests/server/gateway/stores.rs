//! Starting on stores over a network: what is refused, and how the tables get there.

use std::process::{Command, Output};

use justonce_testbed::{Authority, PostgresOptions, PostgresServer, RedisServer, free_port};

use crate::gateway::stage::BODY;
use crate::support::client::pay;
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::Upstream;

/// A gateway on this store, or its last words.
fn started_on(store: &str, more: &str) -> Result<(Home, Gateway), String> {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), store, more);
    upstream.serve();
    let gateway = Gateway::start(home.command())?;
    Ok((home, gateway))
}

/// A store that a gateway does not start on.
fn refused_on(store: &str, more: &str) -> String {
    started_on(store, more).map(drop).expect_err("it started")
}

fn postgres() -> PostgresServer {
    PostgresServer::start(PostgresOptions::default()).unwrap()
}

/// `justonce migrate` on this store.
fn migrate(store: &str, more: &[&str]) -> Output {
    migrate_command(store, more).output().unwrap()
}

fn migrate_command(store: &str, more: &[&str]) -> Command {
    let mut command = justonce();
    command.args(["migrate", "--store", store]).args(more);
    command
}

/// What a command printed that went well.
fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command complained about.
fn complaint(output: Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// How many schemas of this name there are.
fn schemas(server: &PostgresServer, name: &str) -> String {
    let sql = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{name}'");
    server.psql(&sql).unwrap()
}

#[test]
fn a_store_that_cannot_be_reached_is_named_without_its_password() {
    let port = free_port().unwrap();
    for scheme in ["redis", "postgres"] {
        let store = format!("{scheme}://ann:s3cr3t@127.0.0.1:{port}/0");
        let error = refused_on(&store, "");
        let shown = format!("cannot open the store in {scheme}://ann:…@127.0.0.1:{port}/0");
        assert!(error.contains(&shown), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
        assert!(error.to_lowercase().contains("refused"), "it says why: {error}");
    }
}

#[test]
fn a_redis_that_evicts_is_refused() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).unwrap();
    let error = refused_on(&server.url(), "");
    assert!(error.contains("allkeys-lru") && error.contains("noeviction"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let (_home, gateway) = started_on(&server.url(), "").unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
}

#[test]
fn a_postgres_that_wants_tls_gets_it() {
    let authority = Authority::new().unwrap();
    let tls = Some(authority.certificate(&["127.0.0.1"]).unwrap());
    let server = PostgresServer::start(PostgresOptions { tls, ..Default::default() }).unwrap();
    let error = refused_on(&server.url(), "");
    assert!(error.contains("sslmode=verify-full"), "it says what to do: {error}");
    let store = format!("{}?sslmode=verify-full", server.url());
    let error = refused_on(&store, "");
    assert!(error.contains("sslrootcert=FILE"), "it says what to do: {error}");
    let error = complaint(migrate(&store, &[]));
    assert!(error.contains("sslrootcert=FILE"), "it says what to do: {error}");
    // Named in the address, or trusted by the machine.
    printed(migrate(&format!("{store}&sslrootcert={}", authority.file().display()), &[]));
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), &store, "");
    upstream.serve();
    let mut command = home.command();
    command.env("SSL_CERT_FILE", authority.file());
    let gateway = Gateway::start(command).unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn a_redis_that_wants_tls_gets_it() {
    let authority = Authority::new().unwrap();
    let server =
        RedisServer::start_tls(&authority.certificate(&["127.0.0.1"]).unwrap(), &[]).unwrap();
    let error = refused_on(&format!("redis://{}", server.place()), "");
    assert!(error.contains("write rediss"), "it says what to do: {error}");
    let error = refused_on(&server.url(), "");
    assert!(error.contains("redis.ca"), "it says what to do: {error}");
    let ca = format!("redis.ca = '{}'\n", authority.file().display());
    let (_home, gateway) = started_on(&server.url(), &ca).unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert!(pay(gateway.address, "k", BODY).is_replay());
    // The cache in front of PostgreSQL is reached in the same way.
    let truth = postgres();
    let tiers = format!("tiered:{},{}", server.url(), truth.url());
    let more = format!("{ca}near_cache.enabled = false\n");
    let (_home, gateway) = started_on(&tiers, &more).unwrap();
    for _ in 0..2 {
        pay(gateway.address, "tiers", BODY);
    }
    assert!(server.cli(&["KEYS", "*:*}o*"]).unwrap().lines().count() > 0, "nothing was cached");
}

#[test]
fn prefixes_and_schemas_keep_gateways_apart() {
    let (redis, postgres) = (RedisServer::start().unwrap(), postgres());
    for (store, setting) in [(redis.url(), "redis.prefix"), (postgres.url(), "postgres.schema")] {
        let (_one, first) = started_on(&store, &format!("{setting} = 'one'\n")).unwrap();
        let (_two, second) = started_on(&store, &format!("{setting} = 'two'\n")).unwrap();
        for gateway in [&first, &second] {
            assert!(!pay(gateway.address, "k", BODY).is_replay(), "{setting}");
            assert!(pay(gateway.address, "k", BODY).is_replay(), "{setting}");
        }
    }
    let keys = redis.cli(&["KEYS", "*"]).unwrap();
    let is_ours = |key: &str| key.starts_with("{one:") || key.starts_with("{two:");
    assert!(keys.lines().all(is_ours), "{keys}");
    assert_eq!((schemas(&postgres, "one"), schemas(&postgres, "two")), ("1".into(), "1".into()));
}

#[test]
fn without_leave_to_migrate_the_tables_must_be_there() {
    let server = postgres();
    let error = refused_on(&server.url(), "postgres.migrate = false\n");
    assert!(error.contains("justonce migrate"), "it says what to do: {error}");
    assert_eq!(schemas(&server, "justonce"), "0", "nothing was made");
    printed(migrate(&server.url(), &[]));
    let (_home, gateway) = started_on(&server.url(), "postgres.migrate = false\n").unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
}

#[test]
fn migrate_makes_the_tables_once() {
    let server = postgres();
    let first = printed(migrate(&server.url(), &["--schema", "shop"]));
    assert!(first.contains("applied step 1") && first.ends_with("is up to date\n"), "{first}");
    let again = printed(migrate(&server.url(), &["--schema", "shop"]));
    assert!(!again.contains("applied") && again.ends_with("is up to date\n"), "{again}");
    assert_eq!((schemas(&server, "shop"), schemas(&server, "justonce")), ("1".into(), "0".into()));
    // Several at once wait for each other.
    let mut running: Vec<_> = (0..3)
        .map(|_| migrate_command(&server.url(), &["--schema", "many"]).spawn().unwrap())
        .collect();
    assert!(running.iter_mut().all(|one| one.wait().unwrap().success()));
}

#[test]
fn migrate_shows_what_it_would_do_and_an_operator_can_do_it_instead() {
    let server = postgres();
    let sql = printed(migrate(&server.url(), &["--dry-run"]));
    assert!(sql.to_uppercase().contains("CREATE TABLE"), "{sql}");
    assert_eq!(schemas(&server, "justonce"), "0", "nothing was made");
    server.psql(&sql).unwrap();
    let rest = printed(migrate(&server.url(), &["--dry-run"]));
    assert!(rest.starts_with("-- ") && rest.contains("is up to date"), "{rest}");
    let (_home, gateway) = started_on(&server.url(), "postgres.migrate = false\n").unwrap();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn migrate_says_what_is_wrong() {
    let error = complaint(migrate("file:./data", &[]));
    assert!(error.contains("only PostgreSQL does"), "{error}");
    let port = free_port().unwrap();
    for more in [&[][..], &["--dry-run"]] {
        let error = complaint(migrate(&format!("postgres://ann:s3cr3t@127.0.0.1:{port}/x"), more));
        assert!(error.contains(&format!("postgres://ann:…@127.0.0.1:{port}/x")), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
        assert!(error.to_lowercase().contains("refused"), "it says why: {error}");
    }
    // Of a store in tiers, the truth is brought up to date.
    let server = postgres();
    let tiers = format!("tiered:redis://127.0.0.1:{port},{}", server.url());
    printed(migrate(&tiers, &[]));
    assert_eq!(schemas(&server, "justonce"), "1");
}
