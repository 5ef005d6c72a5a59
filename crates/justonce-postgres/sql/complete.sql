-- Complete by the owner of the claim. Otherwise this changes nothing and gives no row.
UPDATE @schema@.records SET
    state = 'completed', changed_at = coalesce($1, @schema@.arrived_1()),
    due = coalesce($1, @schema@.arrived_1()) + retention,
    expires_at = coalesce($1, @schema@.arrived_1()) + retention,
    owner = NULL, token = NULL, claimed_at = NULL, lease_until = NULL, reason = NULL,
    lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
    back_off_first = NULL, back_off_max = NULL, max_attempts = NULL, retention = NULL,
    point_name = NULL, point_data = NULL, point_number = NULL, outcome = $4,
    notes = @schema@.noted_1(
        notes, @schema@.note_1(coalesce($1, @schema@.arrived_1()), fence, 'completed')),
    notes_dropped = notes_dropped + @schema@.crowded_1(notes)
WHERE id = $2 AND fence = $3 AND state IN ('in_progress', 'unknown')
RETURNING CASE WHEN waited THEN @schema@.wake_1(id) END IS NULL
