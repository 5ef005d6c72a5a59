//! The model check: the shipped rules keep every law in every world, and each broken rule is
//! caught.

use std::collections::BTreeSet;

use justonce_model::{Law, MUTANTS, Mutant, Protocol, Setup, SetupError};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores a world to its end under the shipped rules. Below `least` moments the world has become
/// too small to prove anything.
fn explore(setup: Setup, least: usize) {
    let checker = Protocol::shipped(setup).checker().spawn_bfs().join();
    let moments = checker.unique_state_count();
    let steps = checker.state_count();
    println!("{moments} moments, {steps} steps, {} deep", checker.max_depth());
    assert!(checker.is_done(), "the world was not explored to its end");
    checker.assert_properties();
    assert!(moments >= least, "only {moments} moments");
}

macro_rules! worlds {
    ($($world:ident: $setup:ident, $least:literal,)*) => {
        $(#[test]
        fn $world() -> Result<(), SetupError> {
            explore(Setup::$setup()?, $least);
            Ok(())
        })*
    };
}

worlds! {
    the_rules_keep_the_promise_of_hold: hold, 450_000,
    the_rules_keep_the_promise_of_hold_among_three_workers: hold_among_three, 300_000,
    the_rules_keep_the_promise_of_hold_when_failures_are_retried: hold_and_retry, 110_000,
    the_rules_keep_the_promise_of_rerun: rerun, 350_000,
    the_rules_keep_the_promise_of_rerun_with_checkpoints: rerun_and_save, 35_000,
    the_rules_keep_the_promise_of_resume: resume, 280_000,
    the_rules_keep_the_promise_of_resume_again_and_again: resume_again, 200_000,
    the_rules_keep_the_promise_of_resume_with_back_off_and_a_limit: retry, 400_000,
    the_rules_keep_the_promise_of_tombstones: tombstone, 280_000,
}

/// Explores a mutant's world until the law that must catch it is broken.
fn hunt(mutant: &Mutant) -> Result<(), SetupError> {
    let law = mutant.caught_by.name();
    let checker = Protocol::with(mutant.rules, (mutant.setup)()?)
        .checker()
        .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([law])))
        .spawn_bfs()
        .join();
    let path = checker.discovery(law).map(|path| path.into_actions());
    println!("{law}: {path:?}");
    assert!(path.is_some(), "{} was not caught: {law}", mutant.name);
    Ok(())
}

macro_rules! mutants {
    ($($test:ident: $name:literal,)*) => {
        const TESTED: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() -> Result<(), SetupError> {
            hunt(MUTANTS.iter().find(|mutant| mutant.name == $name).unwrap())
        })*
    };
}

mutants! {
    mutant_begin_ignores_the_lease_is_caught: "begin_ignores_the_lease",
    mutant_lease_is_shorter_than_told_is_caught: "lease_is_shorter_than_told",
    mutant_lapsed_hold_runs_again_is_caught: "lapsed_hold_runs_again",
    mutant_unknown_is_claimed_is_caught: "unknown_is_claimed",
    mutant_completed_runs_again_is_caught: "completed_runs_again",
    mutant_takeover_keeps_the_fence_is_caught: "takeover_keeps_the_fence",
    mutant_fences_start_again_is_caught: "fences_start_again",
    mutant_takeover_is_no_attempt_is_caught: "takeover_is_no_attempt",
    mutant_attempts_have_no_limit_is_caught: "attempts_have_no_limit",
    mutant_rerun_gets_the_checkpoint_is_caught: "rerun_gets_the_checkpoint",
    mutant_repeated_begin_claims_anew_is_caught: "repeated_begin_claims_anew",
    mutant_repeated_begin_is_a_duplicate_is_caught: "repeated_begin_is_a_duplicate",
    mutant_back_off_is_ignored_is_caught: "back_off_is_ignored",
    mutant_fingerprint_is_ignored_is_caught: "fingerprint_is_ignored",
    mutant_tombstone_is_ignored_is_caught: "tombstone_is_ignored",
    mutant_lapsed_is_busy_for_ever_is_caught: "lapsed_is_busy_for_ever",
    mutant_peek_calls_busy_claimable_is_caught: "peek_calls_busy_claimable",
    mutant_claim_need_not_be_durable_is_caught: "claim_need_not_be_durable",
    mutant_stale_fence_completes_is_caught: "stale_fence_completes",
    mutant_stale_fence_fails_is_caught: "stale_fence_fails",
    mutant_stale_fence_releases_is_caught: "stale_fence_releases",
    mutant_stale_fence_renews_is_caught: "stale_fence_renews",
    mutant_stale_fence_saves_is_caught: "stale_fence_saves",
    mutant_stale_fence_abandons_is_caught: "stale_fence_abandons",
    mutant_stale_fence_resolves_is_caught: "stale_fence_resolves",
    mutant_becoming_unknown_is_told_twice_is_caught: "becoming_unknown_is_told_twice",
    mutant_completed_is_overwritten_is_caught: "completed_is_overwritten",
    mutant_completion_need_not_be_durable_is_caught: "completion_need_not_be_durable",
    mutant_abandon_frees_under_hold_is_caught: "abandon_frees_under_hold",
    mutant_running_is_resolved_is_caught: "running_is_resolved",
    mutant_unknown_is_never_resolved_is_caught: "unknown_is_never_resolved",
    mutant_renewal_ignores_the_cap_is_caught: "renewal_ignores_the_cap",
    mutant_renewal_is_told_and_not_stored_is_caught: "renewal_is_told_and_not_stored",
    mutant_refused_write_says_applied_is_caught: "refused_write_says_applied",
    mutant_repeated_complete_is_refused_is_caught: "repeated_complete_is_refused",
    mutant_lapsed_owner_cannot_settle_is_caught: "lapsed_owner_cannot_settle",
    mutant_late_owner_cannot_say_what_is_unknown_is_caught: "late_owner_cannot_say_what_is_unknown",
    mutant_retention_removes_unknown_is_caught: "retention_removes_unknown",
    mutant_retention_removes_in_progress_is_caught: "retention_removes_in_progress",
    mutant_retention_ends_at_once_is_caught: "retention_ends_at_once",
    mutant_sweep_holds_a_live_claim_is_caught: "sweep_holds_a_live_claim",
    mutant_back_off_never_ends_is_caught: "back_off_never_ends",
    mutant_back_off_is_over_at_once_is_caught: "back_off_is_over_at_once",
    mutant_sweep_holds_as_of_now_is_caught: "sweep_holds_as_of_now",
    mutant_expire_takes_what_is_unknown_is_caught: "expire_takes_what_is_unknown",
    mutant_erase_takes_what_is_running_is_caught: "erase_takes_what_is_running",
    mutant_erase_takes_what_waits_is_caught: "erase_takes_what_waits",
    mutant_stale_fence_expires_is_caught: "stale_fence_expires",
    mutant_stale_fence_erases_is_caught: "stale_fence_erases",
    mutant_renewal_revives_a_held_claim_is_caught: "renewal_revives_a_held_claim",
    mutant_passing_failure_says_it_is_permanent_is_caught: "passing_failure_says_it_is_permanent",
    mutant_takeover_loses_the_checkpoint_is_caught: "takeover_loses_the_checkpoint",
    mutant_takeover_keeps_the_number_is_caught: "takeover_keeps_the_number",
    mutant_checkpoint_ignores_its_number_is_caught: "checkpoint_ignores_its_number",
    mutant_checkpoint_need_not_be_durable_is_caught: "checkpoint_need_not_be_durable",
    mutant_checkpoint_is_told_and_not_stored_is_caught: "checkpoint_is_told_and_not_stored",
    mutant_release_forgets_earlier_attempts_is_caught: "release_forgets_earlier_attempts",
    mutant_release_forgets_the_checkpoint_is_caught: "release_forgets_the_checkpoint",
    mutant_released_attempt_counts_is_caught: "released_attempt_counts",
    mutant_given_back_is_claimed_from_the_start_is_caught: "given_back_is_claimed_from_the_start",
    mutant_resolution_keeps_the_checkpoint_is_caught: "resolution_keeps_the_checkpoint",
    mutant_resolution_leaves_no_trace_is_caught: "resolution_leaves_no_trace",
}

#[test]
fn every_mutant_has_a_test() {
    let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    assert_eq!(names, TESTED);
}

#[test]
fn every_law_catches_a_mutant() {
    let caught_by: BTreeSet<Law> = MUTANTS.iter().map(|mutant| mutant.caught_by).collect();
    assert_eq!(caught_by, Law::ALL.iter().copied().collect());
}
