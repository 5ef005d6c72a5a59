//! A store for one test, and gateways on it.

use std::cell::{Cell, RefCell};
use std::process::Command;
use std::rc::Rc;

use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

use super::service::{Service, counted};
use super::stage::Stage;
use crate::support::client::until;
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Message;

/// Where records are kept during one line of the contract, and by whom.
pub(crate) struct Place {
    pub(crate) store: Store,
    /// Where PostgreSQL keeps them.
    schema: String,
    directory: tempfile::TempDir,
    is_full: Cell<bool>,
}

/// Who keeps the records.
pub(crate) enum Store {
    Embedded,
    Redis(RedisServer),
    Postgres(SharedPostgres),
    Tiered(RedisServer, SharedPostgres),
}

/// A PostgreSQL that several lines use, one after the other.
pub(crate) type SharedPostgres = Rc<RefCell<PostgresServer>>;

/// The longest name of a schema that the configuration takes.
const LONGEST_SCHEMA: usize = 40;

/// A Redis that evicts nothing and writes down what it acknowledges.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

fn started_redis() -> RedisServer {
    RedisServer::start_with(&DURABLE).unwrap()
}

pub(crate) fn started_postgres() -> SharedPostgres {
    Rc::new(RefCell::new(PostgresServer::start(PostgresOptions::default()).unwrap()))
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
        Self::of(Store::Embedded, "")
    }

    pub(crate) fn redis() -> Self {
        Self::of(Store::Redis(started_redis()), "")
    }

    /// A schema for one line.
    pub(crate) fn postgres(server: &SharedPostgres, line: &str) -> Self {
        Self::of(Store::Postgres(Rc::clone(server)), line)
    }

    /// The same, with a Redis of its own in front of it.
    pub(crate) fn tiered(server: &SharedPostgres, line: &str) -> Self {
        Self::of(Store::Tiered(started_redis(), Rc::clone(server)), line)
    }

    fn of(store: Store, line: &str) -> Self {
        let schema = line.chars().take(LONGEST_SCHEMA).collect();
        let directory = tempfile::tempdir().unwrap();
        Self { store, schema, directory, is_full: Cell::new(false) }
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
        let of_store = match &self.store {
            Store::Embedded => String::new(),
            Store::Redis(_) => "near_cache.enabled = false\n".to_owned(),
            Store::Postgres(_) => {
                format!("near_cache.enabled = false\npostgres.schema = '{}'\n", self.schema)
            }
            Store::Tiered(..) => format!("postgres.schema = '{}'\n", self.schema),
        };
        let more = format!("timeouts.store = '1s'\nlog.format = 'json'\n{of_store}{more}");
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

    /// From now on the store cannot be written. What a file system or a database does when it
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
                self.is_full.set(true);
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

impl Drop for Place {
    /// The next line finds the server as this one did.
    fn drop(&mut self) {
        let (Store::Postgres(postgres) | Store::Tiered(_, postgres)) = &self.store else {
            return;
        };
        if self.is_full.get() && !std::thread::panicking() {
            let postgres = postgres.borrow();
            postgres.psql("ALTER SYSTEM RESET default_transaction_read_only").unwrap();
            postgres.psql("SELECT pg_reload_conf()").unwrap();
            let ask = || postgres.psql("SHOW default_transaction_read_only").unwrap();
            until("leave to write", ask, |answer| answer == "off");
        }
    }
}
