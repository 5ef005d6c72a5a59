//! A gateway between a caller and a service.

use super::service::Service;
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Message;

/// A gateway in front of a service.
pub(crate) struct Stage {
    pub(crate) home: Home,
    pub(crate) gateway: Gateway,
    pub(crate) service: Service,
}

impl Stage {
    /// A payment that is under way.
    pub(crate) fn paying(&self, key: &str) -> Call {
        self.sending("POST /payments", &[("idempotency-key", key)], BODY)
    }

    /// A payment and its answer.
    pub(crate) fn pay(&self, key: &str) -> Message {
        self.paying(key).answer()
    }

    /// A payment that would rather wait than be refused.
    pub(crate) fn pay_patiently(&self, key: &str) -> Message {
        let headers = [("idempotency-key", key), ("prefer", "wait=20")];
        self.ask("POST /payments", &headers, BODY)
    }

    /// Any request that is under way.
    pub(crate) fn sending(
        &self,
        request: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Call {
        Call::send(self.gateway.address, request, headers, body)
    }

    /// Any request and its answer.
    pub(crate) fn ask(
        &self,
        request: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Message {
        self.sending(request, headers, body).answer()
    }

    /// A request with a key and its answer.
    pub(crate) fn post(&self, path: &str, key: &str, body: &str) -> Message {
        self.ask(&format!("POST {path}"), &[("idempotency-key", key)], body)
    }

    /// The state of a payment's key.
    pub(crate) fn state(&self, key: &str) -> String {
        self.state_at("/payments", key)
    }

    pub(crate) fn state_at(&self, path: &str, key: &str) -> String {
        let path = format!("/.well-known/idempotency/{key}?path={path}");
        let answer = Call::ask(self.gateway.address, &path);
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.json()["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a payment's key has this state.
    pub(crate) fn until_state(&self, key: &str, wanted: &str) {
        until(wanted, || self.state(key), |state| state == wanted);
    }

    /// Waits until so many duplicates wait for a running payment.
    pub(crate) fn until_waiters(&self, count: usize) {
        until_waiters(&self.gateway, count);
    }

    /// How often the store was asked about a record, whatever for.
    pub(crate) fn steps(&self) -> u64 {
        const UPKEEP: [&str; 5] = ["list", "stats", "sweep_all", "ready", "health"];
        self.counted(|step| !UPKEEP.contains(&step))
    }

    /// How often the store was asked for one kind of step.
    pub(crate) fn count_of(&self, wanted: &str) -> u64 {
        self.counted(|step| step == wanted)
    }

    fn counted(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        const START: &str = "idempotency_store_operations_total{operation=\"";
        let metrics = self.metrics();
        let counts = metrics.lines().filter_map(|line| {
            let (step, rest) = line.strip_prefix(START)?.split_once('"')?;
            let count = rest.rsplit_once(' ')?.1.parse::<u64>().ok()?;
            wanted(step).then_some(count)
        });
        counts.sum()
    }

    pub(crate) fn metrics(&self) -> String {
        Call::get(self.gateway.admin, "/metrics").text()
    }

    /// Another gateway takes the place of this one, which is killed.
    pub(crate) fn killed_and_restarted(self) -> Self {
        let Self { home, gateway, service } = self;
        gateway.kill();
        let gateway = home.start();
        Self { home, gateway, service }
    }
}

/// Waits until so many duplicates wait at a gateway.
pub(crate) fn until_waiters(gateway: &Gateway, count: usize) {
    let line = format!("idempotency_waiters{{route=\"default\"}} {count}\n");
    until("waiters", || Call::get(gateway.admin, "/metrics").text(), |text| text.contains(&line));
}

/// A refusal of ours.
#[track_caller]
pub(crate) fn assert_problem(answer: &Message, status: u16, code: &str) {
    let got = (answer.status(), answer.code());
    assert_eq!(got, (status, code.to_owned()), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

/// An answer of a service that counts, given for the first time.
#[track_caller]
pub(crate) fn assert_fresh(answer: &Message, number: usize) {
    let got = (answer.status(), answer.text(), answer.is_replay());
    assert_eq!(got, (201, format!("payment {number}"), false), "{answer:?}");
}

/// The same, repeated.
#[track_caller]
pub(crate) fn assert_replay(answer: &Message, number: usize) {
    let got = (answer.status(), answer.text(), answer.is_replay());
    assert_eq!(got, (201, format!("payment {number}"), true), "{answer:?}");
}
