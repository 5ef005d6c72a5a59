//! What every server has to meet to keep records, and the refusal of steps while one does not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::Value;

use crate::lock::lock;

/// The oldest version that is supported.
const LEAST_VERSION: (u32, u32) = (7, 0);

/// The requirements for all servers of a store. While one of them may evict records, no step is
/// taken: an operation whose record was evicted would run again.
pub(crate) struct Requirements {
    is_cluster: bool,
    /// Whether there is a violation: every step reads this.
    refuses: AtomicBool,
    violation: Mutex<Option<String>>,
}

impl Requirements {
    pub(crate) const fn new(is_cluster: bool) -> Self {
        Self { is_cluster, refuses: AtomicBool::new(false), violation: Mutex::new(None) }
    }

    /// Refuses a step while there is a violation.
    pub(crate) fn ensure(&self) -> StoreResult<()> {
        if !self.refuses.load(Ordering::Acquire) {
            return Ok(());
        }
        // This ends as soon as the server is corrected, so owners try their writes again.
        self.violation().map_or(Ok(()), |violation| {
            Err(StoreError::not_applied(StoreErrorKind::Unavailable, violation))
        })
    }

    /// Why no step is taken.
    pub(crate) fn violation(&self) -> Option<String> {
        lock(&self.violation).clone()
    }

    /// Checks what a server reports. If it violates the requirements, all steps are refused.
    pub(crate) fn check(&self, address: &str, info: &Info) -> StoreResult<()> {
        let Some(why) = violation(info, self.is_cluster) else { return Ok(()) };
        let reason = format!("no step is taken: the server {address} {why}");
        let mut kept = lock(&self.violation);
        if kept.as_ref() != Some(&reason) {
            tracing::error!("{reason}");
        }
        *kept = Some(reason);
        self.refuses.store(true, Ordering::Release);
        drop(kept);
        self.ensure()
    }

    /// Accepts steps again, after all servers were checked.
    pub(crate) fn accept(&self) {
        let mut kept = lock(&self.violation);
        if kept.take().is_some() {
            tracing::info!("the servers were corrected: steps are taken again");
        }
        self.refuses.store(false, Ordering::Release);
    }
}

/// The reply to INFO.
pub(crate) struct Info(String);

impl Info {
    pub(crate) fn of(value: &Value) -> Self {
        Self(match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            _ => String::new(),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }
}

/// What a server violates.
fn violation(info: &Info, is_cluster: bool) -> Option<String> {
    // Valkey reports the version of Redis that it is compatible with.
    let version = info.get("redis_version").unwrap_or("unknown");
    if version_of(version).is_none_or(|version| version < LEAST_VERSION) {
        let (major, minor) = LEAST_VERSION;
        return Some(format!("is Redis {version}; {major}.{minor} or later is needed"));
    }
    // Valkey has another name for it.
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"));
    if mode == Some("cluster") && !is_cluster {
        return Some("is part of a cluster: use redis-cluster://…".to_owned());
    }
    match info.get("maxmemory_policy") {
        Some("noeviction") => None,
        Some(policy) => Some(format!(
            "may evict records (maxmemory-policy {policy}), and an evicted record runs again: set \
             maxmemory-policy noeviction"
        )),
        None => Some(
            "does not say in INFO whether it may evict records: let it show maxmemory_policy, and \
             set maxmemory-policy noeviction"
                .to_owned(),
        ),
    }
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "redis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction";

    fn violated(text: &str, is_cluster: bool) -> Option<String> {
        violation(&Info(text.to_owned()), is_cluster)
    }

    #[test]
    fn servers_that_may_lose_records_are_refused() {
        assert_eq!(violated(GOOD, false), None);
        let valkey = GOOD.replace("7.0.15", "7.2.4").replace("redis_mode", "server_mode");
        assert_eq!(violated(&valkey, false), None, "Valkey");
        let old = violated(&GOOD.replace("7.0.15", "6.2.7"), false).unwrap();
        assert!(old.contains("6.2.7") && old.contains("7.0"), "{old}");
        let evicts = violated(&GOOD.replace("noeviction", "allkeys-lru"), false).unwrap();
        assert!(evicts.contains("allkeys-lru"), "{evicts}");
        let silent = violated(&GOOD.replace("maxmemory_policy", "other"), false).unwrap();
        assert!(silent.contains("does not say"), "{silent}");
        let cluster = GOOD.replace("standalone", "cluster");
        for cluster in [cluster, valkey.replace("standalone", "cluster")] {
            assert!(violated(&cluster, false).unwrap().contains("redis-cluster://"));
            assert_eq!(violated(&cluster, true), None);
        }
        assert!(violated("", false).unwrap().contains("unknown"));
    }

    #[test]
    fn one_violation_refuses_all_steps_until_all_servers_are_corrected() {
        let requirements = Requirements::new(false);
        let good = Info(GOOD.to_owned());
        requirements.check("a:1", &good).unwrap();
        let error = requirements
            .check("b:2", &Info(GOOD.replace("noeviction", "volatile-ttl")))
            .expect_err("it may evict");
        assert!(error.to_string().contains("b:2"), "{error}");
        requirements.check("a:1", &good).unwrap();
        requirements.ensure().expect_err("a good server does not correct the other");
        requirements.accept();
        requirements.ensure().unwrap();
    }
}
