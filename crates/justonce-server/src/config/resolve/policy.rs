//! Leases and retention of a route.

use std::time::Duration;

use justonce::{OnLapsed, Policy, PolicyError};

use super::complete;
use super::layer::Layer;
use crate::config::report::Report;
use crate::config::section::Set;
use crate::config::tree::Origin;
use crate::config::words;

/// The promise of a route. What is wrong with it is reported, and then nothing comes back.
pub(super) fn resolve(layer: &Layer, report: &mut Report) -> Option<Policy> {
    // A gateway cannot know what its upstream did.
    let on_lapsed = layer.on_lapsed.as_ref().map_or(OnLapsed::Hold, |set| set.value);
    let mut builder = Policy::builder().on_lapsed(match on_lapsed {
        // The request is stored with the claim, and the next claim must get it.
        OnLapsed::Rerun if complete::is_on(layer) => OnLapsed::Resume,
        other => other,
    });
    if let Some(set) = &layer.lease {
        builder = builder.lease(set.value);
    }
    if let Some(set) = &layer.lease_cap {
        builder = builder.lease_cap(set.value);
    }
    if let Some(set) = &layer.retention {
        builder = builder.retention(set.value);
    }
    if let Some(set) = &layer.after_retention {
        builder = builder.after_retention(set.value);
    }
    match builder.build() {
        Ok(policy) => check(layer, &policy, report).then_some(policy),
        Err(error) => {
            // Each duration is in its range: what is left is how they stand to each other.
            let message = match error {
                PolicyError::LeaseCap(cap) => {
                    format!("`lease_cap` ({}) is shorter than `lease`", words::duration(cap))
                }
                other => other.to_string(),
            };
            report.at(&first_set(&layer.lease_cap, &layer.lease), message, None);
            None
        }
    }
}

fn check(layer: &Layer, policy: &Policy, report: &mut Report) -> bool {
    let (retention, lease) = (policy.retention(), policy.lease());
    if retention >= lease {
        return true;
    }
    let message = format!(
        "`retention` ({}) is shorter than `lease` ({}): an outcome must outlive the claim",
        words::duration(retention),
        words::duration(lease)
    );
    report.at(&first_set(&layer.retention, &layer.lease), message, None);
    false
}

/// Where the first was set, else the second.
pub(super) fn first_set(first: &Option<Set<Duration>>, second: &Option<Set<Duration>>) -> Origin {
    let set = first.as_ref().or(second.as_ref());
    set.map_or(Origin::Default, |set| set.origin.clone())
}
