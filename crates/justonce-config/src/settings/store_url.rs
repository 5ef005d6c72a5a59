//! Where records are kept.

use std::fmt;
use std::path::PathBuf;

use crate::invalid::{Invalid, Read};
use crate::kind::{full_text, repeated};
use crate::nearest::did_you_mean;
use crate::tree::Node;

/// Kinds of stores that are known by name and not built in.
const OTHER_STORES: [&str; 2] = ["dynamodb", "etcd"];
/// All kinds that are built in.
const STORES: [&str; 11] = [
    "memory",
    "file",
    "redis",
    "rediss",
    "redis-sentinel",
    "redis-cluster",
    "rediss-sentinel",
    "rediss-cluster",
    "postgres",
    "postgresql",
    "tiered",
];
/// What is expected, in words.
const EXPECTED: &str = "expected `memory:`, `file:PATH`, `redis://…`, `redis-sentinel://…`, \
                        `redis-cluster://…`, `postgres://…` or \
                        `tiered:redis://…,postgres://…`";

/// Where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process, until it ends: `memory:`.
    Memory,
    /// In the embedded store in this directory: `file:PATH`.
    File(PathBuf),
    /// In Redis: `redis://…`, `redis-sentinel://…` or `redis-cluster://…`; with TLS, `rediss` in
    /// place of `redis`.
    Redis(ServerUrl),
    /// In PostgreSQL: `postgres://…`.
    Postgres(ServerUrl),
    /// In PostgreSQL, with Redis in front of it for duplicates:
    /// `tiered:redis://…,postgres://…`.
    Tiered {
        /// What serves duplicates.
        redis: ServerUrl,
        /// What decides.
        postgres: ServerUrl,
    },
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Redis(url) | Self::Postgres(url) => url.fmt(f),
            Self::Tiered { redis, postgres } => write!(f, "tiered:{redis},{postgres}"),
        }
    }
}

/// The address of a server, in which there may be a password: it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// An address.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole address, password included. Do not log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (place, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        // An `@` behind the `?` is in a value of the query, or ends a password with a `?` in it.
        let (place, unclear) = match query.rsplit_once('@') {
            None => (place, false),
            Some((value, _)) if value.contains('=') => (place, true),
            Some(_) => (rest, false),
        };
        let name = |user: &str| match user.split_once(':') {
            None => user.to_owned(),
            Some((name, _)) => format!("{name}:…"),
        };
        match place.rsplit_once('@') {
            None if unclear => write!(f, "{scheme}://{}", name(place)),
            None => write!(f, "{scheme}://{place}"),
            Some((user, server)) => {
                let server = server.split(['?', '#']).next().unwrap_or_default();
                write!(f, "{scheme}://{}@{server}", name(user))
            }
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

/// Reads the address of a store.
pub(super) fn url(node: &Node) -> Read<StoreUrl> {
    let text = full_text(node)?;
    let (kind, rest) = text.split_once(':').unwrap_or((&text, ""));
    match kind {
        "memory" if rest.is_empty() => Ok(StoreUrl::Memory),
        "memory" => Err(Invalid::at(node, "nothing follows `memory:`")),
        "file" if rest.is_empty() => {
            Err(Invalid::at(node, "expected a path, as in \"file:./justonce-data\""))
        }
        "file" => Ok(StoreUrl::File(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))),
        "redis" | "redis-sentinel" | "redis-cluster" | "rediss" | "rediss-sentinel"
        | "rediss-cluster" => server(node, &text, "redis://127.0.0.1:6379").map(StoreUrl::Redis),
        "postgres" | "postgresql" => {
            server(node, &text, "postgres://user@127.0.0.1/justonce").map(StoreUrl::Postgres)
        }
        "tiered" => tiered(node, rest),
        other if OTHER_STORES.contains(&other) => {
            Err(Invalid::at(node, format!("a store in {other} is not supported yet by this build"))
                .help(EXPECTED.to_owned()))
        }
        other => {
            let path = text.starts_with(['.', '/']).then(|| format!("did you mean `file:{text}`?"));
            let message = format!("{EXPECTED}, found {}", repeated(other));
            Err(Invalid::at(node, message).help(path.or_else(|| did_you_mean(other, STORES))))
        }
    }
}

/// A server's address. It is not repeated: there may be a password in it.
fn server(node: &Node, text: &str, like: &str) -> Read<ServerUrl> {
    let host = text.split_once("://").map(|(_, rest)| rest);
    let host = host.map(|rest| rest.rsplit_once('@').map_or(rest, |(_, host)| host));
    match host {
        Some(host) if !host.starts_with(['/', '?', ':']) && !host.is_empty() => {
            Ok(ServerUrl::new(text))
        }
        // A socket of the system is named in the query.
        Some(host) if host.contains("?host=") || host.contains("&host=") => {
            Ok(ServerUrl::new(text))
        }
        _ => Err(Invalid::at(node, format!("expected a host, as in \"{like}\""))),
    }
}

fn tiered(node: &Node, text: &str) -> Read<StoreUrl> {
    let wrong = || {
        let like = "tiered:redis://127.0.0.1:6379,postgres://user@127.0.0.1/justonce";
        Invalid::at(node, format!("expected Redis, a comma and PostgreSQL, as in \"{like}\""))
    };
    // Addresses of clusters have commas of their own.
    let at = text.find(",postgres").ok_or_else(wrong)?;
    let (redis, postgres) = text.split_at_checked(at).ok_or_else(wrong)?;
    let postgres = postgres.trim_start_matches(',');
    if !redis.starts_with("redis") {
        return Err(wrong());
    }
    Ok(StoreUrl::Tiered {
        redis: server(node, redis, "redis://127.0.0.1:6379")?,
        postgres: server(node, postgres, "postgres://user@127.0.0.1/justonce")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        let shown = |url: &str| ServerUrl::new(url).to_string();
        assert_eq!(shown("redis://127.0.0.1:6379/0"), "redis://127.0.0.1:6379/0");
        assert_eq!(shown("postgres://ann:s3cr3t@db/jo"), "postgres://ann:…@db/jo");
        assert_eq!(shown("postgres://ann:p@ss:w@db/jo"), "postgres://ann:…@db/jo");
        assert_eq!(shown("redis://:s3cr3t@db"), "redis://:…@db");
        assert_eq!(shown("redis://ann:s3#cr3t@db?a=b"), "redis://ann:…@db");
        assert_eq!(shown("postgres://ann:s3?cr/3t@db/jo"), "postgres://ann:…@db/jo");
        assert_eq!(shown("postgres://ann@db/jo?password=s3cr3t"), "postgres://ann@db/jo");
        assert_eq!(shown("postgres://ann@db/jo?a=b&password=s3cr@3t"), "postgres://ann@db/jo");
        assert_eq!(shown("postgres://ann:s3c@db/jo?password=s3cr@t"), "postgres://ann:…@db/jo");
        assert_eq!(shown("postgres://db/jo?user=ann&password=s3cr@t"), "postgres://db/jo");
        assert_eq!(shown("postgres://ann:s3?a=cr@db"), "postgres://ann:…");
        let url = ServerUrl::new("postgres://ann:s3cr3t@db/jo");
        assert!(!format!("{url:?}").contains("s3cr3t"));
    }
}
