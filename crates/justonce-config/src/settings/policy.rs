//! Leases and retention of a route.

use std::time::Duration;

use justonce_core::{AfterRetention, MAX_LEASE, MIN_LEASE, OnLapsed, Policy, PolicyError};

use super::values::{RETENTIONS, after_retention};
use crate::declare::settings;
use crate::kind::{choice, custom, time};
use crate::report::Report;
use crate::section::first_set;
use crate::words;

settings! {
    /// What one source says about leases and retention.
    layer PolicyLayer {
        /// After a crash: `hold` executes nothing until the operation is resolved, `rerun` executes
        /// again.
        on_lapsed: OnLapsed = choice(&[("hold", OnLapsed::Hold), ("rerun", OnLapsed::Rerun)]),
            default "hold", example "rerun";
        /// How long a claim is honoured without renewal.
        lease: Duration = time(MIN_LEASE..=MAX_LEASE), default "30s", example "10s";
        /// How long a claim may be renewed in all.
        lease_cap: Duration = time(MIN_LEASE..=MAX_LEASE), default "15m", example "1h";
        /// How long outcomes are replayed.
        retention: Duration = time(RETENTIONS), default "24h", example "72h";
        /// After that: `new` is a new operation, `refuse` is 409 for 30 days, `refuse TIME` for
        /// that long.
        after_retention: AfterRetention = custom(after_retention),
            default "new", example "refuse 90d";
    }
}

/// The policy of a route. What is wrong with it is reported, and then nothing comes back.
pub(super) fn resolve(layer: &PolicyLayer, stores: bool, report: &mut Report) -> Option<Policy> {
    let PolicyLayer { on_lapsed, lease, lease_cap, retention, after_retention } = layer;
    let (lease, lease_cap) = (lease.as_ref()?, lease_cap.as_ref()?);
    let retention = retention.as_ref()?;
    let built = Policy::builder()
        .on_lapsed(match on_lapsed.as_ref()?.value {
            // The request is stored with the claim, and the next claim must get it.
            OnLapsed::Rerun if stores => OnLapsed::Resume,
            other => other,
        })
        .lease(lease.value)
        .lease_cap(lease_cap.value)
        .retention(retention.value)
        .after_retention(after_retention.as_ref()?.value)
        .build();
    match built {
        Ok(_) if retention.value < lease.value => {
            let message = format!(
                "`retention` ({}) is shorter than `lease` ({}): an outcome must outlive the claim",
                words::duration(retention.value),
                words::duration(lease.value)
            );
            report.at(&first_set([&retention.origin, &lease.origin]), message, None);
            None
        }
        Ok(policy) => Some(policy),
        Err(error) => {
            // Each duration is in its range: what is left is how they stand to each other.
            let message = match error {
                PolicyError::LeaseCap(cap) => {
                    format!("`lease_cap` ({}) is shorter than `lease`", words::duration(cap))
                }
                other => other.to_string(),
            };
            report.at(&first_set([&lease_cap.origin, &lease.origin]), message, None);
            None
        }
    }
}
