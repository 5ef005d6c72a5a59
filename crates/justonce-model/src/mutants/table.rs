//! The mutants by name, each with a world in which it does harm and the law that catches it.

use super::{claims, points, releases, time, writes};
use crate::laws::Law;
use crate::protocol::Rules;
use crate::setup::{Setup, SetupError};

/// The real rules with one of them broken.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What it does wrong.
    pub name: &'static str,
    /// The broken rules.
    pub rules: Rules,
    /// A world in which it does harm.
    pub setup: fn() -> Result<Setup, SetupError>,
    /// The law that catches it.
    pub caught_by: Law,
}

macro_rules! mutants {
    ($($file:ident::$name:ident, $setup:ident, $law:ident;)*) => {
        /// All mutants.
        pub const MUTANTS: &[Mutant] = &[$(Mutant {
            name: stringify!($name),
            rules: $file::$name,
            setup: Setup::$setup,
            caught_by: Law::$law,
        }),*];
    };
}

mutants! {
    claims::begin_ignores_the_lease, rerun, LiveLease;
    claims::lease_is_shorter_than_told, rerun, LiveLease;
    claims::lapsed_hold_runs_again, hold, HoldRunsOnce;
    claims::unknown_is_claimed, hold, UnknownStays;
    claims::completed_runs_again, rerun, OutcomeStays;
    claims::takeover_keeps_the_fence, rerun, OneClaimPerFence;
    claims::fences_start_again, hold, OneClaimPerFence;
    claims::takeover_is_no_attempt, rerun, Attempts;
    claims::attempts_have_no_limit, retry, Attempts;
    claims::rerun_gets_the_checkpoint, rerun_and_save, HandedOver;
    claims::repeated_begin_claims_anew, rerun, SameCall;
    claims::repeated_begin_is_a_duplicate, hold, SameCall;
    claims::back_off_is_ignored, hold_and_retry, BackOff;
    claims::fingerprint_is_ignored, hold, Fingerprint;
    claims::tombstone_is_ignored, tombstone, Tombstone;
    claims::lapsed_is_busy_for_ever, rerun, CanEnd;
    claims::peek_calls_busy_claimable, hold, Peek;
    claims::claim_need_not_be_durable, hold, HoldRunsOnce;
    writes::stale_fence_completes, rerun, StaleFence;
    writes::stale_fence_fails, rerun, StaleFence;
    writes::stale_fence_releases, rerun, StaleFence;
    writes::stale_fence_renews, rerun, StaleFence;
    writes::stale_fence_saves, resume, StaleFence;
    writes::stale_fence_abandons, rerun, StaleFence;
    writes::stale_fence_resolves, hold, StaleFence;
    writes::becoming_unknown_is_told_twice, hold, Answers;
    writes::completed_is_overwritten, hold, OutcomeStays;
    writes::completion_need_not_be_durable, hold, OutcomeStays;
    writes::abandon_frees_under_hold, hold, HoldRunsOnce;
    writes::running_is_resolved, hold, OnlyUnknown;
    writes::unknown_is_never_resolved, hold, CanEnd;
    writes::renewal_ignores_the_cap, rerun, Cap;
    writes::renewal_is_told_and_not_stored, rerun, LiveLease;
    writes::refused_write_says_applied, rerun, Answers;
    writes::repeated_complete_is_refused, hold, Repeatable;
    writes::lapsed_owner_cannot_settle, rerun, OwnerSettles;
    writes::late_owner_cannot_say_what_is_unknown, hold, OwnerSettles;
    time::retention_removes_unknown, hold, RetentionKeeps;
    time::retention_removes_in_progress, rerun, RetentionKeeps;
    time::retention_ends_at_once, hold, OutcomeStays;
    time::sweep_holds_a_live_claim, hold, LiveLease;
    time::back_off_never_ends, hold_and_retry, CanEnd;
    time::back_off_is_over_at_once, hold_and_retry, BackOff;
    time::sweep_holds_as_of_now, hold, Held;
    time::expire_takes_what_is_unknown, hold, EndedOnly;
    time::erase_takes_what_is_running, rerun, EndedOnly;
    time::erase_takes_what_waits, hold_and_retry, EndedOnly;
    writes::stale_fence_expires, hold, EndedOnly;
    writes::stale_fence_erases, hold, EndedOnly;
    writes::renewal_revives_a_held_claim, hold, Held;
    writes::passing_failure_says_it_is_permanent, hold_and_retry, Answers;
    points::takeover_loses_the_checkpoint, resume, HandedOver;
    points::takeover_keeps_the_number, resume, HandedOver;
    points::checkpoint_ignores_its_number, resume, LateCheckpoint;
    points::checkpoint_need_not_be_durable, resume, HandedOver;
    points::checkpoint_is_told_and_not_stored, resume, Answers;
    releases::release_forgets_earlier_attempts, resume, GivenBack;
    releases::release_forgets_the_checkpoint, resume, GivenBack;
    releases::released_attempt_counts, rerun, GivenBack;
    releases::given_back_is_claimed_from_the_start, resume_again, HandedOver;
    releases::resolution_keeps_the_checkpoint, retry, GivenBack;
    releases::resolution_leaves_no_trace, hold, Trace;
}
