//! The completer of all routes that want one, exchanged with the routes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use justonce::Engine;
use justonce::saga::{Completer, CompleterSettings, Round};
use justonce::worker::Worker;
use metrics::{counter, gauge};

use super::driver::RouteDriver;
use crate::config::Settings;
use crate::metrics::{
    COMPLETED, COMPLETER_PARKED, COMPLETER_RECORDS, COMPLETER_RESULTS, COMPLETER_ROUNDS,
};
use crate::stack::Stack;

/// How many records of each route one round looks at.
const PAGE: usize = 100;

/// The completer of all routes that want one.
#[derive(Default)]
pub(crate) struct Completers(ArcSwapOption<Worker>);

impl Completers {
    /// Starts a completer for these routes, and stops the one before. What it was driving goes on.
    pub(crate) fn exchange(
        &self,
        engine: &Engine,
        stack: &Arc<ArcSwap<Stack>>,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let routes = settings.all_routes();
        let routes: Vec<_> =
            routes.filter(|route| route.complete.is_some() && route.key.is_some()).collect();
        // Owners renew at a third of their lease: who has not for that long may be gone.
        let lease = routes.iter().map(|route| route.policy.lease()).max();
        let Some(lease) = lease else {
            self.stop();
            return Ok(());
        };
        // A request has a time limit of its own, and no claim is renewed beyond its cap.
        let cap = routes.iter().map(|route| route.policy.lease_cap()).max().unwrap_or(lease);
        let mut completer = Completer::new(engine, completer_settings(settings, lease / 3, cap));
        let mut names = Vec::new();
        for route in routes {
            // Two patterns may share a name, and with it their keys.
            if !names.contains(&&route.name) {
                names.push(&route.name);
                let driver = RouteDriver { route: route.name.clone(), stack: Arc::clone(stack) };
                completer = completer.with(driver)?;
            }
        }
        self.0.store(Some(Arc::new(completer.start(observe))));
        Ok(())
    }

    /// Takes nothing more. What is under way goes on.
    pub(crate) fn stop(&self) {
        self.0.store(None);
    }
}

impl fmt::Debug for Completers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completers").field(&self.0.load().is_some()).finish()
    }
}

fn completer_settings(
    settings: &Settings,
    unchanged_for: Duration,
    drive_timeout: Duration,
) -> CompleterSettings {
    let limits = settings.completer;
    CompleterSettings {
        every: limits.every,
        unchanged_for,
        page: PAGE,
        at_once: limits.at_once,
        drive_timeout,
        retry_stuck: None,
        ..CompleterSettings::default()
    }
}

/// Counts and logs what a round did.
fn observe(round: Round) {
    let troubles = round.troubles.len();
    let counts = [round.ended, round.not_yet, round.left, troubles];
    for (result, count) in COMPLETER_RESULTS.into_iter().zip(counts) {
        counter!(COMPLETED.name, "result" => result).increment(count as u64);
    }
    counter!(COMPLETER_RECORDS.name).increment(round.seen as u64);
    counter!(COMPLETER_ROUNDS.name).increment(1);
    gauge!(COMPLETER_PARKED.name).set(round.parked as f64);
    let Round { ended, not_yet, .. } = round;
    if ended + not_yet > 0 {
        tracing::info!(target: "justonce::completer", ended, not_yet, "operations were driven on");
    }
    for trouble in round.troubles {
        tracing::warn!(target: "justonce::completer", %trouble, "an operation is not driven on");
    }
}
