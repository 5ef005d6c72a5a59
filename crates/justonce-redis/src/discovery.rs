//! Replies that name servers: CLUSTER SLOTS, and those of sentinels.

use std::collections::HashMap;

use redis::{Value, from_redis_value_ref};

use crate::layout::{BUCKETS, Layout};

/// A server at `host:port`, and whether it is a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) is_primary: bool,
}

/// The address of each bucket's primary, from CLUSTER SLOTS. A cluster can have slots that no node
/// serves.
pub(crate) fn primaries(reply: &Value, layout: &Layout, host: &str) -> Vec<Option<String>> {
    let ranges: Vec<_> = rows(reply).filter_map(|row| range(row, host)).collect();
    let primary = |bucket: u8| {
        let slot = layout.slot(bucket);
        let range = ranges.iter().find(|(from, to, _)| (from..=to).contains(&&slot));
        range.map(|(_, _, address)| address.clone())
    };
    (0..BUCKETS).filter_map(|bucket| u8::try_from(bucket).ok()).map(primary).collect()
}

/// All nodes that CLUSTER SLOTS names.
pub(crate) fn members(reply: &Value, host: &str) -> Vec<Server> {
    let mut found: Vec<Server> = Vec::new();
    for row in rows(reply) {
        for (at, node) in row.iter().skip(2).enumerate() {
            if let Some(address) = address(node, host)
                && !found.iter().any(|server| server.address == address)
            {
                found.push(Server { address, is_primary: at == 0 });
            }
        }
    }
    found
}

/// The primary and the replicas that are up, from a sentinel's replies to GET-MASTER-ADDR-BY-NAME
/// and REPLICAS.
pub(crate) fn sentinel_group(replies: &[Value]) -> Vec<Server> {
    let [primary, replicas] = replies else {
        return Vec::new();
    };
    let Ok(Some((host, port))) = from_redis_value_ref::<Option<(String, u16)>>(primary) else {
        return Vec::new();
    };
    let mut found = vec![Server { address: format!("{host}:{port}"), is_primary: true }];
    let replicas: Vec<HashMap<String, String>> = from_redis_value_ref(replicas).unwrap_or_default();
    for replica in replicas {
        let flags = replica.get("flags").map(String::as_str).unwrap_or_default();
        let is_down = flags.split(',').any(|flag| flag == "s_down");
        if let (Some(host), Some(port), false) = (replica.get("ip"), replica.get("port"), is_down) {
            found.push(Server { address: format!("{host}:{port}"), is_primary: false });
        }
    }
    found
}

/// The rows of CLUSTER SLOTS: a range of slots, its primary, its replicas.
fn rows(reply: &Value) -> impl Iterator<Item = &[Value]> {
    array(reply).unwrap_or_default().iter().filter_map(array)
}

/// The first and the last slot of a row, and the address of its primary.
fn range(row: &[Value], host: &str) -> Option<(u16, u16, String)> {
    let [from, to, primary, ..] = row else {
        return None;
    };
    Some((number(from)?, number(to)?, address(primary, host)?))
}

/// The address of a node. A node that does not know its own host is at the host that replied.
fn address(node: &Value, replying: &str) -> Option<String> {
    let [host, port, ..] = array(node)? else {
        return None;
    };
    let host = from_redis_value_ref::<String>(host).ok();
    let host = host.filter(|host| !host.is_empty() && host != "?");
    Some(format!("{}:{}", host.as_deref().unwrap_or(replying), number(port)?))
}

fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_finds_the_primary_of_its_slot() {
        let node = |host: &str, port: i64| {
            Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)])
        };
        let row = |from, to, primary| {
            Value::Array(vec![Value::Int(from), Value::Int(to), primary, node("replica", 1)])
        };
        let reply =
            Value::Array(vec![row(0, 8000, node("", 7001)), row(8001, 16383, node("b", 7002))]);
        let layout = Layout::new("justonce");
        let found = primaries(&reply, &layout, "asked");
        assert_eq!(found.len(), BUCKETS);
        for (bucket, address) in (0..=u8::MAX).zip(found) {
            let expected = if layout.slot(bucket) <= 8000 { "asked:7001" } else { "b:7002" };
            assert_eq!(address.as_deref(), Some(expected));
        }
    }
}
