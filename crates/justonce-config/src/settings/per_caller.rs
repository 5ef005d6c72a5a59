//! `per_caller`: what each caller of a route may use.

use std::ops::RangeInclusive;
use std::time::Duration;

use justonce_core::MAX_RETENTION;
use justonce_http::{CallerLimits, Rate};

use super::tables::MANY;
use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{custom, number, repeated, size, text, time_in};
use crate::report::Report;
use crate::tree::Node;

/// The most operations that a rate may name, and the most at once.
const MANY_OPERATIONS: u32 = 1_000_000;
/// The time of a rate.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=MAX_RETENTION;

settings! {
    /// What one source says about the limits of callers.
    layer PerCallerLayer, inherit inherit {
        /// How many new operations a caller may begin in which time: `50/s`, `600/m`, `10/30s`;
        /// over it 429. `off` is no limit. Replays are never limited
        /// ([more](http.md#limits-per-caller)).
        rate: PerCallerRate = custom(rate), default "off", example "50/s";
        /// How many of them at once, after a pause; without it, as many as `rate` names.
        burst: u32 = number(1..=MANY_OPERATIONS), example "100";
        /// How many operations of a caller may run at the same time; over it 429. 0 is no limit.
        concurrent: usize = number(0..=MANY), default "0", example "10";
        /// How many bytes of responses a caller may have stored by this gateway within the
        /// `retention`; over it 429. 0 is no limit.
        stored_bytes: usize = size(0..=1 << 40), default "0", example "10MB";
    }
}

/// What `rate` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerCallerRate {
    /// No limit.
    Off,
    /// So many operations in this time.
    Of(u32, Duration),
}

/// A route that says its rate leaves behind what was said of another.
fn inherit(own: PerCallerLayer, mut below: PerCallerLayer) -> (PerCallerLayer, PerCallerLayer) {
    if own.rate.is_some() {
        below.burst = None;
    }
    (own, below)
}

/// The limits of a route; nothing if it has none. What is wrong is reported.
pub(super) fn resolve(layer: &PerCallerLayer, report: &mut Report) -> Option<CallerLimits> {
    let mut limits = CallerLimits::default();
    match (layer.rate.as_ref()?.value, &layer.burst) {
        (PerCallerRate::Of(operations, time), burst) => {
            let rate = Rate::new(operations, time);
            limits = limits.rate(burst.as_ref().map_or(rate, |set| rate.burst(set.value)));
        }
        (PerCallerRate::Off, Some(burst)) => {
            let message = "`per_caller.burst` belongs to `per_caller.rate`, which is off";
            report.at(&burst.origin, message.to_owned(), None);
        }
        (PerCallerRate::Off, None) => {}
    }
    let concurrent = layer.concurrent.as_ref()?.value;
    if concurrent > 0 {
        limits = limits.concurrent(concurrent);
    }
    let bytes = layer.stored_bytes.as_ref()?.value;
    if bytes > 0 {
        limits = limits.stored_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
    Some(limits).filter(|limits| !limits.is_none())
}

/// `off`, `50/s`, `600/m` or `10/30s`.
fn rate(node: &Node) -> Read<PerCallerRate> {
    let text = text(node)?.trim();
    if text == "off" {
        return Ok(PerCallerRate::Off);
    }
    let wrong = || {
        let found = repeated(text);
        Invalid::at(node, format!("expected a rate, as in \"50/s\", or \"off\", found {found}"))
    };
    let (operations, time) = text.split_once('/').ok_or_else(wrong)?;
    let operations: u32 = operations.trim().parse().map_err(|_| wrong())?;
    if !(1..=MANY_OPERATIONS).contains(&operations) {
        let message = format!("expected 1 to {MANY_OPERATIONS} operations in a time");
        return Err(Invalid::at(node, message));
    }
    let time = match time.trim() {
        unit if unit.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            time_in(&format!("1{unit}"), &TIMES, node).map_err(|_| wrong())?
        }
        time => time_in(time, &TIMES, node)?,
    };
    Ok(PerCallerRate::Of(operations, time))
}
