//! Which node of a cluster has which bucket.

use redis::Value;

use crate::checks::Server;
use crate::layout::{BUCKETS, Layout};

/// The place, `host:port`, of each bucket's primary. Places may be missing: a cluster can have
/// slots that nobody serves.
pub(crate) fn places(reply: &Value, layout: &Layout, asked: &str) -> Vec<Option<String>> {
    let ranges = ranges(reply, asked);
    let place = |bucket: u8| {
        let slot = layout.slot(bucket);
        let range = ranges.iter().find(|range| (range.from..=range.to).contains(&slot))?;
        Some(range.place.clone())
    };
    (0..BUCKETS).filter_map(|bucket| u8::try_from(bucket).ok()).map(place).collect()
}

struct Range {
    from: u16,
    to: u16,
    place: String,
}

/// The reply of CLUSTER SLOTS: ranges of slots, each with its primary and then its replicas.
fn ranges(reply: &Value, asked: &str) -> Vec<Range> {
    let Value::Array(rows) = reply else {
        return Vec::new();
    };
    rows.iter().filter_map(|row| range(row, asked)).collect()
}

fn range(row: &Value, asked: &str) -> Option<Range> {
    let Value::Array(parts) = row else {
        return None;
    };
    let [from, to, primary, ..] = parts.as_slice() else {
        return None;
    };
    Some(Range { from: slot(from)?, to: slot(to)?, place: place(primary, asked)? })
}

/// All nodes that the reply names.
pub(crate) fn members(reply: &Value, asked: &str) -> Vec<Server> {
    let Value::Array(rows) = reply else {
        return Vec::new();
    };
    let mut found: Vec<Server> = Vec::new();
    for row in rows {
        let Value::Array(parts) = row else { continue };
        for (at, node) in parts.iter().skip(2).enumerate() {
            if let Some(place) = place(node, asked)
                && !found.iter().any(|server| server.place == place)
            {
                found.push(Server { place, is_primary: at == 0 });
            }
        }
    }
    found
}

/// Where a node is.
fn place(node: &Value, asked: &str) -> Option<String> {
    let Value::Array(parts) = node else {
        return None;
    };
    let [host, port, ..] = parts.as_slice() else {
        return None;
    };
    // A node that does not know its own name is where it was asked.
    let host = text(host).filter(|host| !host.is_empty() && host != "?");
    let host = host.unwrap_or_else(|| asked.to_owned());
    Some(format!("{host}:{}", slot(port)?))
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
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
        let places = places(&reply, &layout, "asked");
        assert_eq!(places.len(), BUCKETS);
        for (bucket, place) in (0..=u8::MAX).zip(places) {
            let expected = if layout.slot(bucket) <= 8000 { "asked:7001" } else { "b:7002" };
            assert_eq!(place.as_deref(), Some(expected));
        }
    }
}
