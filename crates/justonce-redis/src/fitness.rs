//! Whether the servers can keep the promise: what each says about itself, and the answer to steps
//! while one of them cannot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use redis::Value;

/// The oldest version that will do.
const LEAST_VERSION: (u32, u32) = (7, 0);

/// What is known about all servers of a store. While one of them may forget records, no step is
/// taken: an operation whose record was evicted would run again.
#[derive(Debug)]
pub(crate) struct Fitness {
    as_cluster: bool,
    /// Whether there is a reason: every step looks here.
    refuses: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Fitness {
    pub(crate) const fn new(as_cluster: bool) -> Self {
        Self { as_cluster, refuses: AtomicBool::new(false), reason: Mutex::new(None) }
    }

    /// Whether steps may be taken.
    pub(crate) fn ensure(&self) -> StoreResult<()> {
        if !self.refuses.load(Ordering::Acquire) {
            return Ok(());
        }
        // It passes as soon as somebody corrects the server, so owners try their writes again.
        self.reason().map_or(Ok(()), |reason| {
            Err(StoreError::not_applied(StoreErrorKind::Unavailable, reason))
        })
    }

    /// Why no step is taken.
    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    /// What a server says about itself: refuses all steps if it cannot keep the promise.
    pub(crate) fn judge(&self, place: &str, info: &Info) -> StoreResult<()> {
        let Some(why) = unfit(info, self.as_cluster) else { return Ok(()) };
        let reason = format!("no step is taken: the server {place} {why}");
        let mut kept = self.lock();
        if kept.as_ref() != Some(&reason) {
            tracing::error!("{reason}");
        }
        *kept = Some(reason);
        self.refuses.store(true, Ordering::Release);
        drop(kept);
        self.ensure()
    }

    /// All servers were asked, and all can keep the promise.
    pub(crate) fn accept(&self) {
        let mut kept = self.lock();
        if kept.take().is_some() {
            tracing::info!("the servers were corrected: steps are taken again");
        }
        self.refuses.store(false, Ordering::Release);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server says about itself.
#[derive(Debug)]
pub(crate) struct Info(String);

impl Info {
    pub(crate) fn of(value: &Value) -> Self {
        Self(match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            Value::SimpleString(text) => text.clone(),
            _ => String::new(),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }
}

/// Why a server cannot keep the promise; nothing if it can.
fn unfit(info: &Info, as_cluster: bool) -> Option<String> {
    // Valkey says which Redis it is like.
    let version = info.get("redis_version").unwrap_or("unknown");
    if version_of(version).is_none_or(|version| version < LEAST_VERSION) {
        let (major, minor) = LEAST_VERSION;
        return Some(format!("is Redis {version}; {major}.{minor} or later is needed"));
    }
    // Valkey has another name for it.
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"));
    if mode == Some("cluster") && !as_cluster {
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

    fn unfit_because(text: &str, as_cluster: bool) -> Option<String> {
        unfit(&Info(text.to_owned()), as_cluster)
    }

    #[test]
    fn servers_that_cannot_keep_the_promise_are_refused() {
        assert_eq!(unfit_because(GOOD, false), None);
        let valkey = GOOD.replace("7.0.15", "7.2.4").replace("redis_mode", "server_mode");
        assert_eq!(unfit_because(&valkey, false), None, "Valkey");
        let old = unfit_because(&GOOD.replace("7.0.15", "6.2.7"), false).unwrap();
        assert!(old.contains("6.2.7") && old.contains("7.0"), "{old}");
        let evicts = unfit_because(&GOOD.replace("noeviction", "allkeys-lru"), false).unwrap();
        assert!(evicts.contains("allkeys-lru"), "{evicts}");
        let silent = unfit_because(&GOOD.replace("maxmemory_policy", "other"), false).unwrap();
        assert!(silent.contains("does not say"), "{silent}");
        let cluster = GOOD.replace("standalone", "cluster");
        for cluster in [cluster, valkey.replace("standalone", "cluster")] {
            assert!(unfit_because(&cluster, false).unwrap().contains("redis-cluster://"));
            assert_eq!(unfit_because(&cluster, true), None);
        }
        assert!(unfit_because("", false).unwrap().contains("unknown"));
    }

    #[test]
    fn one_unfit_server_refuses_all_steps_until_all_are_fit() {
        let fitness = Fitness::new(false);
        let good = Info(GOOD.to_owned());
        fitness.judge("a:1", &good).unwrap();
        let error = fitness
            .judge("b:2", &Info(GOOD.replace("noeviction", "volatile-ttl")))
            .expect_err("it may evict");
        assert!(error.to_string().contains("b:2"), "{error}");
        fitness.judge("a:1", &good).unwrap();
        fitness.ensure().expect_err("one that is fit does not make the other fit");
        fitness.accept();
        fitness.ensure().unwrap();
    }
}
