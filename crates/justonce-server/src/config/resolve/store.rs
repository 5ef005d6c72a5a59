//! Where records are kept, and how.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::complaint::{Complaint, Read};
use crate::config::convert::{boolean, full_text, number, path, repeated, size, some_time};
use crate::config::nearest::did_you_mean;
use crate::config::report::Report;
use crate::config::section::Section;
use crate::config::store::{
    NearCacheSettings, PostgresSettings, RedisSettings, ServerUrl, StoreSettings, StoreUrl,
};
use crate::config::tree::Node;

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
pub(super) fn url(node: &Node) -> Read<StoreUrl> {
    let text = full_text(node)?;
    let (kind, rest) = text.split_once(':').unwrap_or((&text, ""));
    match kind {
        "memory" if rest.is_empty() => Ok(StoreUrl::Memory),
        "memory" => Err(Complaint::about(node, "nothing follows `memory:`")),
        "file" if rest.is_empty() => {
            Err(Complaint::about(node, "expected a path, as in \"file:./justonce-data\""))
        }
        "file" => Ok(StoreUrl::File(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))),
        "redis" | "redis-sentinel" | "redis-cluster" | "rediss" | "rediss-sentinel"
        | "rediss-cluster" => server(node, &text, "redis://127.0.0.1:6379").map(StoreUrl::Redis),
        "postgres" | "postgresql" => {
            server(node, &text, "postgres://user@127.0.0.1/justonce").map(StoreUrl::Postgres)
        }
        "tiered" => tiered(node, rest),
        other if OTHER_STORES.contains(&other) => Err(Complaint::about(
            node,
            format!("a store in {other} is not supported yet by this build"),
        )
        .help(EXPECTED.to_owned())),
        other => {
            let path = text.starts_with(['.', '/']).then(|| format!("did you mean `file:{text}`?"));
            let message = format!("{EXPECTED}, found {}", repeated(other));
            Err(Complaint::about(node, message).help(path.or_else(|| did_you_mean(other, STORES))))
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
        _ => Err(Complaint::about(node, format!("expected a host, as in \"{like}\""))),
    }
}

fn tiered(node: &Node, text: &str) -> Read<StoreUrl> {
    let wrong = || {
        let like = "tiered:redis://127.0.0.1:6379,postgres://user@127.0.0.1/justonce";
        Complaint::about(node, format!("expected Redis, a comma and PostgreSQL, as in \"{like}\""))
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

/// How stores are used.
pub(super) fn settings(top: &Section<'_>, report: &mut Report) -> StoreSettings {
    const TIMEOUT: Duration = Duration::from_secs(5);
    StoreSettings {
        timeout: top.inside("timeouts").get_or("store", TIMEOUT, report, some_time),
        redis: redis(&top.inside("redis"), report),
        postgres: postgres(&top.inside("postgres"), report),
        near_cache: near_cache(&top.inside("near_cache"), report),
    }
}

fn redis(redis: &Section<'_>, report: &mut Report) -> RedisSettings {
    RedisSettings {
        prefix: redis.get_or("prefix", "justonce".to_owned(), report, name),
        ca: redis.get("ca", report, path).map(|set| set.value),
        wait_replicas: redis.get_or("wait_replicas", 0, report, number(0..=16)),
        wait_timeout: redis.get_or("wait_timeout", Duration::from_secs(1), report, some_time),
    }
}

fn postgres(postgres: &Section<'_>, report: &mut Report) -> PostgresSettings {
    PostgresSettings {
        schema: postgres.get_or("schema", "justonce".to_owned(), report, name),
        connections: postgres.get_or("connections", 16, report, number(1..=1000)),
        migrate: postgres.get_or("migrate", true, report, boolean),
    }
}

fn near_cache(near: &Section<'_>, report: &mut Report) -> Option<NearCacheSettings> {
    const BYTES: usize = 32 * 1024 * 1024;
    const MOST: usize = 1 << 36;
    let enabled = near.get_or("enabled", true, report, boolean);
    let settings = NearCacheSettings {
        bytes: near.get_or("bytes", BYTES, report, size(1 << 16..=MOST)),
        age: near.get_or("age", Duration::from_secs(5), report, some_time),
    };
    enabled.then_some(settings)
}

/// A name that needs no quotes anywhere.
fn name(node: &Node) -> Read<String> {
    const LONGEST: usize = 40;
    let text = full_text(node)?;
    let fits = text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if fits {
        return Ok(text);
    }
    let message = format!("expected up to {LONGEST} small letters, digits and `_`");
    Err(Complaint::about(node, format!("{message}, found {}", repeated(&text))))
}
