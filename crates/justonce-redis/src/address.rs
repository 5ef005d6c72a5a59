//! The addresses of a store.
//!
//! ```text
//! redis://[user:password@]host:port[/database]
//! redis-sentinel://[user:password@]host:port,host:port/name[/database]
//! redis-cluster://[user:password@]host:port,host:port
//! ```
//!
//! With the feature `tls`, each also with `rediss` in place of `redis`.

use justonce_core::{StoreError, StoreErrorKind};
use justonce_net::TLS_NOT_BUILT_IN;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::layout::BUCKETS;
use crate::tls::Roots;

/// The address of a store.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// One server.
    Single(ConnectionInfo),
    /// A primary, by the name under which the sentinels know it.
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, primary: Template },
    /// A cluster, and some of its nodes.
    Cluster { seeds: Vec<ConnectionInfo>, node: Template },
}

/// How to connect to servers that sentinels or nodes name.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    scheme: String,
    credentials: String,
    database: String,
    roots: Roots,
}

impl Template {
    /// The connection to `host:port`.
    pub(crate) fn at(&self, host: &str) -> Result<ConnectionInfo, StoreError> {
        let Self { scheme, credentials, database, roots } = self;
        info(&format!("{scheme}://{credentials}{host}{database}"), roots)
    }
}

impl Address {
    /// Parses an address. All servers that it leads to have the same trust roots.
    pub(crate) fn parse(url: &str, roots: &Roots) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(url, FORMS))?;
        let (scheme, kind) = match scheme.split_once('-') {
            Some((scheme, kind)) => (scheme, kind),
            None => (scheme, ""),
        };
        if !matches!(scheme, "redis" | "rediss") {
            return Err(wrong(url, FORMS));
        }
        if scheme == "rediss" && !cfg!(feature = "tls") {
            return Err(wrong(url, TLS_NOT_BUILT_IN));
        }
        if scheme == "redis" && roots.are_from_file() {
            return Err(wrong(url, "certificates are for TLS: write rediss in place of redis"));
        }
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (format!("{credentials}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let template = |credentials: &str, database: &str| Template {
            scheme: scheme.to_owned(),
            credentials: credentials.to_owned(),
            database: database.to_owned(),
            roots: roots.clone(),
        };
        let all = |template: &Template| {
            let hosts = hosts.split(',').filter(|host| !host.is_empty());
            let found = hosts.map(|host| template.at(host)).collect::<Result<Vec<_>, _>>()?;
            if found.is_empty() { Err(wrong(url, "it names no host")) } else { Ok(found) }
        };
        match kind {
            "" => Ok(Self::Single(info(url, roots)?)),
            "cluster" if path.is_empty() => {
                let node = template(&credentials, "");
                Ok(Self::Cluster { seeds: all(&node)?, node })
            }
            "cluster" => Err(wrong(url, "a cluster has no databases")),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong(url, "the name of the primary is missing: …/name"));
                }
                let database =
                    if database.is_empty() { String::new() } else { format!("/{database}") };
                Ok(Self::Sentinel {
                    // The credentials are those of the servers, not of the sentinels.
                    sentinels: all(&template("", ""))?,
                    name: name.to_owned(),
                    primary: template(&credentials, &database),
                })
            }
            _ => Err(wrong(url, FORMS)),
        }
    }
}

const FORMS: &str = "use redis://host:port, redis-sentinel://host:port,host:port/name or \
                     redis-cluster://host:port,host:port";

/// Push messages, which tell when a connection is lost, need the newer protocol.
fn info(url: &str, roots: &Roots) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().and_then(|info| roots.applied_to(info));
    let info = info.map_err(|error| wrong(url, &error.to_string()))?;
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(wrong(url, "certificates are always checked: leave #insecure out"));
    }
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings.set_lib_name("justonce", env!("CARGO_PKG_VERSION"))))
}

/// An address may hold a password, so that only what follows it is shown.
fn wrong(url: &str, why: &str) -> StoreError {
    let shown = url.rsplit_once('@').map_or(url, |(_, shown)| shown);
    let message = format!("{shown:?} is not the address of a Redis store: {why}");
    StoreError::not_applied(StoreErrorKind::Stopped, message)
}

/// A prefix stands in front of every key, inside the hash tag.
pub(crate) fn checked_prefix(prefix: &str) -> Result<(), StoreError> {
    let fits = (1..=MAX_PREFIX_BYTES).contains(&prefix.len());
    if fits && prefix.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'{' | b'}')) {
        return Ok(());
    }
    let message = format!(
        "the prefix {prefix:?} is not allowed: use 1 to {MAX_PREFIX_BYTES} visible characters \
         without braces"
    );
    Err(StoreError::not_applied(StoreErrorKind::Stopped, message))
}

/// The longest prefix, in bytes: every key repeats it.
const MAX_PREFIX_BYTES: usize = 64;
const _: () = assert!(BUCKETS == 256, "the tag of a bucket has two digits");

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Address, StoreError> {
        Address::parse(url, &Roots::default())
    }

    #[test]
    fn the_three_forms_are_told_apart() {
        assert!(matches!(parsed("redis://h:1/2").unwrap(), Address::Single(_)));
        let sentinel = parsed("redis-sentinel://u:p@a:1,b:2/main/3").unwrap();
        let Address::Sentinel { sentinels, name, primary } = sentinel else {
            panic!("not a sentinel's address");
        };
        assert_eq!((sentinels.len(), name.as_str()), (2, "main"));
        assert_eq!(sentinels[0].redis_settings().username(), None);
        let primary = primary.at("c:3").unwrap();
        assert_eq!(primary.addr().to_string(), "c:3");
        assert_eq!(primary.redis_settings().username(), Some("u"));
        assert_eq!(primary.redis_settings().db(), 3);
        let cluster = parsed("redis-cluster://a:1,b:2,c:3").unwrap();
        assert!(matches!(cluster, Address::Cluster { seeds, .. } if seeds.len() == 3));
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong_and_show_no_password() {
        for (url, why) in [
            ("localhost", "use redis://"),
            ("http://h:1", "use redis://"),
            ("redis-ring://h:1", "use redis://"),
            ("redis-cluster://", "names no host"),
            ("redis-cluster://u:secret@h:1/2", "no databases"),
            ("redis-sentinel://u:secret@h:1", "name of the primary"),
        ] {
            let error = parsed(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_that_was_not_built_in_is_refused() {
        for url in ["rediss://u:secret@h:1", "rediss-sentinel://h:1/main", "rediss-cluster://h:1"] {
            let error = parsed(url).unwrap_err().to_string();
            assert!(error.contains("the feature `tls`") && !error.contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_reaches_every_server_that_an_address_leads_to() {
        let is_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        assert!(matches!(parsed("rediss://h:1").unwrap(), Address::Single(info) if is_tls(&info)));
        let Address::Sentinel { sentinels, primary, .. } =
            parsed("rediss-sentinel://a:1,b:2/main").unwrap()
        else {
            panic!("not a sentinel's address");
        };
        assert!(sentinels.iter().all(is_tls) && is_tls(&primary.at("c:3").unwrap()));
        let Address::Cluster { seeds, node } = parsed("rediss-cluster://a:1,b:2").unwrap() else {
            panic!("not a cluster's address");
        };
        assert!(seeds.iter().all(is_tls) && is_tls(&node.at("c:3").unwrap()));
        for url in ["rediss://u:secret@h:1#insecure", "rediss-cluster://u:secret@a:1#insecure"] {
            let error = parsed(url).unwrap_err().to_string();
            assert!(error.contains("always checked") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn prefixes_cannot_leave_their_tag() {
        assert!(checked_prefix("justonce").is_ok());
        for wrong in ["", "a b", "a}", "{a", &"x".repeat(65)] {
            assert!(checked_prefix(wrong).is_err(), "{wrong}");
        }
    }
}
