//! A store for one test, and gateways on it.

use std::cell::RefCell;
use std::process::Command;

use justonce_testkit::servers::{PostgresOptions, PostgresServer, RedisServer};

use super::service::{Service, counted};
use super::stage::Stage;
use crate::process::{Gateway, Home};
use crate::upstream::Message;

/// Where records are kept during one test, and by whom.
pub(crate) struct Place {
    pub(crate) store: Store,
    directory: tempfile::TempDir,
}

/// Who keeps the records.
pub(crate) enum Store {
    Embedded,
    Redis(RedisServer),
    Postgres(RefCell<PostgresServer>),
    Tiered(RedisServer, RefCell<PostgresServer>),
}

/// A Redis that evicts nothing and writes down what it acknowledges.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

fn started_redis() -> RedisServer {
    RedisServer::start_with(&DURABLE).unwrap()
}

fn started_postgres() -> RefCell<PostgresServer> {
    RefCell::new(PostgresServer::start(PostgresOptions::default()).unwrap())
}

/// The same command, with the signal ignored that comes before a file grows over its limit.
fn deaf_to_limits(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

impl Place {
    pub(crate) fn embedded() -> Self {
        Self::of(Store::Embedded)
    }

    pub(crate) fn redis() -> Self {
        Self::of(Store::Redis(started_redis()))
    }

    pub(crate) fn postgres() -> Self {
        Self::of(Store::Postgres(started_postgres()))
    }

    pub(crate) fn tiered() -> Self {
        Self::of(Store::Tiered(started_redis(), started_postgres()))
    }

    fn of(store: Store) -> Self {
        Self { store, directory: tempfile::tempdir().unwrap() }
    }

    /// The address of the store, as the configuration wants it.
    pub(crate) fn url(&self) -> String {
        match &self.store {
            Store::Embedded => format!("file:{}", self.directory.path().join("data").display()),
            Store::Redis(redis) => redis.url(),
            Store::Postgres(postgres) => postgres.borrow().url(),
            Store::Tiered(redis, postgres) => {
                format!("tiered:{},{}", redis.url(), postgres.borrow().url())
            }
        }
    }

    /// The configuration of a gateway on this store. Where the store is the whole truth, every
    /// answer comes from it: outcomes are not kept in the gateway. In tiers, they are.
    pub(crate) fn home(&self, service: &Service, more: &str) -> Home {
        let home = Home::new();
        let near = match &self.store {
            Store::Redis(_) | Store::Postgres(_) => "near_cache.enabled = false\n",
            Store::Embedded | Store::Tiered(..) => "",
        };
        let more = format!("timeouts.store = '2s'\nlog.format = 'json'\n{near}{more}");
        home.configure_on(service.address(), &self.url(), &more);
        home
    }

    /// A gateway with these settings in front of a service.
    pub(crate) fn before(&self, service: Service, more: &str) -> Stage {
        let home = self.home(&service, more);
        // A process that may not write is told so by a signal first; this one takes the error.
        let gateway = match &self.store {
            Store::Embedded => Gateway::start(deaf_to_limits(&home.command())).unwrap(),
            _ => home.start(),
        };
        Stage { home, gateway, service }
    }

    /// A gateway in front of a service that waits to be told what to answer.
    pub(crate) fn patient(&self, more: &str) -> Stage {
        self.before(Service::patient(), more)
    }

    /// A gateway in front of a service that answers `payment 1`, `payment 2` and so on.
    pub(crate) fn counting(&self, more: &str) -> Stage {
        self.before(Service::answering(|number, _| counted(number)), more)
    }

    /// A gateway in front of a service that answers by itself.
    pub(crate) fn answering(
        &self,
        more: &str,
        answer: impl Fn(usize, &Message) -> Vec<u8> + Send + Sync + 'static,
    ) -> Stage {
        self.before(Service::answering(answer), more)
    }

    /// Another gateway on the same store and in front of the same service. Only one gateway at a
    /// time can have an embedded store.
    pub(crate) fn second(&self, stage: &Stage) -> Gateway {
        stage.home.start()
    }

    /// From now on nobody can write to the store. What a file system or a database does when it
    /// is full, it does at every write.
    pub(crate) fn fill(&self, gateway: &Gateway) {
        match &self.store {
            Store::Embedded => {
                let mut limit = Command::new("prlimit");
                limit.args(["--pid", &gateway.id().to_string(), "--fsize=0:unlimited"]);
                assert!(limit.status().unwrap().success());
            }
            Store::Redis(redis) => {
                redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
            }
            Store::Postgres(postgres) | Store::Tiered(_, postgres) => {
                let postgres = postgres.borrow();
                postgres.psql("ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
                postgres.psql("SELECT pg_reload_conf()").unwrap();
            }
        }
    }

    /// The server of the store stops where it stands: it is there, and does not answer.
    pub(crate) fn pause(&self) {
        match &self.store {
            Store::Embedded => panic!("the gateway itself is the store"),
            Store::Redis(redis) => redis.pause().unwrap(),
            Store::Postgres(postgres) | Store::Tiered(_, postgres) => {
                postgres.borrow().pause().unwrap();
            }
        }
    }

    pub(crate) fn resume(&self) {
        match &self.store {
            Store::Embedded => panic!("the gateway itself is the store"),
            Store::Redis(redis) => redis.resume().unwrap(),
            Store::Postgres(postgres) | Store::Tiered(_, postgres) => {
                postgres.borrow().resume().unwrap();
            }
        }
    }

    /// The server of the store ends in good order.
    pub(crate) fn stop(&self) {
        match &self.store {
            Store::Embedded => panic!("the gateway itself is the store"),
            Store::Redis(redis) => redis.stop().unwrap(),
            Store::Postgres(postgres) | Store::Tiered(_, postgres) => {
                postgres.borrow_mut().stop().unwrap();
            }
        }
    }

    pub(crate) fn restart(&self) {
        match &self.store {
            Store::Embedded => panic!("the gateway itself is the store"),
            Store::Redis(redis) => redis.restart().unwrap(),
            Store::Postgres(postgres) | Store::Tiered(_, postgres) => {
                postgres.borrow_mut().restart().unwrap();
            }
        }
    }
}
