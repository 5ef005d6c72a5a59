id, state, fence, attempt, changed_at, created_at, scope, key, fingerprint,
owner, token, claimed_at, lease_until,
lease, lease_cap, on_lapsed, on_failure, back_off_first, back_off_max, max_attempts,
retention, refuse, retry_at, expires_at, reason,
-- Released records have an empty outcome.
outcome = @empty@ AS is_empty
