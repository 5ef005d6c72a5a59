//! A gateway with an operation that became unknown.

use std::net::SocketAddr;

use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};
use serde_json::{Value, json};

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Message, Upstream};

/// What all gateways here are told.
pub(crate) const CONFIG: &str = "callback_token = 'token-of-the-payments-service'\n\
                                 [defaults]\nlease = '1s'\n\
                                 [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n\
                                 scope = ['header:authorization', 'tenant:header:x-tenant']\n";

/// A gateway, its service, and where it lives.
pub(crate) struct Stage {
    pub(crate) home: Home,
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
}

/// What the service heard of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) record: String,
    pub(crate) fence: u64,
}

impl Heard {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            record: message.header("idempotency-record").unwrap().to_owned(),
            fence: message.header("idempotency-fence").unwrap().parse().unwrap(),
        }
    }
}

/// A server that a store lives on, for as long as this is held.
pub(crate) enum Server {
    File,
    Redis(Box<RedisServer>),
    Postgres(Box<PostgresServer>),
}

impl Server {
    /// One of each kind.
    pub(crate) fn all() -> [Self; 3] {
        let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
        [
            Self::File,
            Self::Redis(Box::new(RedisServer::start().unwrap())),
            Self::Postgres(Box::new(postgres)),
        ]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::File => "embedded",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// The store's address; nothing for the directory of the home itself.
    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Self::File => None,
            Self::Redis(server) => Some(server.url()),
            Self::Postgres(server) => Some(server.url()),
        }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(&Server::File, CONFIG)
    }

    pub(crate) fn with(server: &Server, config: &str) -> Self {
        let (home, upstream) = (Home::new(), Upstream::new());
        match server.url() {
            None => home.configure(upstream.address(), config),
            Some(url) => home.configure_on(upstream.address(), &url, config),
        }
        let gateway = home.start();
        Self { home, upstream, gateway }
    }

    /// Makes an operation unknown: the service breaks off after it has heard it.
    pub(crate) fn unknown(&self, key: &str) -> Heard {
        self.unknown_of(key, "")
    }

    /// The same with more lines in the head of the request.
    pub(crate) fn unknown_of(&self, key: &str, more: &str) -> Heard {
        let mut call = Call::pay_with(self.gateway.address, key, BODY, more);
        let mut connection = self.upstream.accept();
        let heard = Heard::of(&connection.read());
        drop(connection);
        assert_eq!(call.answer().status(), 502);
        heard
    }

    /// Kills the gateway in the middle of an operation and starts it again.
    pub(crate) fn killed_during(self, key: &str) -> (Self, Heard) {
        let _call = Call::pay(self.gateway.address, key, BODY);
        let mut connection = self.upstream.accept();
        let heard = Heard::of(&connection.read());
        let Self { home, upstream, gateway } = self;
        gateway.kill();
        let gateway = home.start();
        (Self { home, upstream, gateway }, heard)
    }

    pub(crate) fn pay(&self, key: &str) -> Message {
        pay(self.gateway.address, key, BODY)
    }

    pub(crate) fn get(&self, path: &str) -> Message {
        admin_get(self.gateway.admin, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Message {
        admin_post(self.gateway.admin, path, body)
    }

    /// Completes an operation as an operator, with this body as the answer.
    pub(crate) fn complete(&self, heard: &Heard, by: &str, body: &str) -> Message {
        let said = json!({ "fence": heard.fence, "by": by, "why": "it is in the books",
                           "outcome": { "status": 201, "body": body } });
        self.post(&format!("/keys/{}/complete", heard.record), &said)
    }

    pub(crate) fn release(&self, heard: &Heard, by: &str) -> Message {
        let said = json!({ "fence": heard.fence, "by": by, "why": "it is not in the books" });
        self.post(&format!("/keys/{}/release", heard.record), &said)
    }

    /// The notes about resolutions in the timeline: who, how, why.
    pub(crate) fn resolutions(&self, heard: &Heard) -> Vec<String> {
        let shown = self.get(&format!("/keys/{}", heard.record)).json();
        let notes = shown["timeline"].as_array().unwrap().iter();
        let resolved = notes.filter(|note| note["what"] == "resolved");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        resolved
            .map(|note| {
                let (kind, by) = (text(&note["by_kind"]), text(&note["by"]));
                format!("{kind} {by} {}: {}", text(&note["how"]), text(&note["why"]))
            })
            .collect()
    }
}

pub(crate) fn admin_get(admin: SocketAddr, path: &str) -> Message {
    admin_send(admin, &format!("GET {path}"), &[], "")
}

pub(crate) fn admin_post(admin: SocketAddr, path: &str, body: &Value) -> Message {
    let headers = [("content-type", "application/json")];
    admin_send(admin, &format!("POST {path}"), &headers, &body.to_string())
}

/// Any request to the address itself.
pub(crate) fn admin_send(
    admin: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Message {
    let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let lines = lines.collect::<String>();
    let length = body.len();
    let mut call = Call::connect(admin);
    let head =
        format!("{request} HTTP/1.1\r\nhost: {admin}\r\n{lines}content-length: {length}\r\n\r\n");
    call.write(format!("{head}{body}").as_bytes());
    call.answer()
}
