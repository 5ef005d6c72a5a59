-- Several completions of different records. As `complete.sql`, in the order of ids.
UPDATE @schema@.records AS kept SET
    state = 'completed', changed_at = coalesce($1, @schema@.arrived_1()),
    due = coalesce($1, @schema@.arrived_1()) + retention,
    expires_at = coalesce($1, @schema@.arrived_1()) + retention,
    owner = NULL, token = NULL, claimed_at = NULL, lease_until = NULL, reason = NULL,
    lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
    back_off_first = NULL, back_off_max = NULL, max_attempts = NULL, retention = NULL,
    point_name = NULL, point_data = NULL, point_number = NULL, outcome = done.outcome,
    notes = @schema@.noted_1(
        notes, @schema@.note_1(coalesce($1, @schema@.arrived_1()), kept.fence, 'completed')),
    notes_dropped = notes_dropped + @schema@.crowded_1(notes)
FROM unnest($2::bytea[], $3::bigint[], $4::bytea[])
    WITH ORDINALITY AS done (id, fence, outcome, place)
WHERE kept.id = done.id AND kept.fence = done.fence AND kept.state IN ('in_progress', 'unknown')
RETURNING done.place, CASE WHEN kept.waited THEN @schema@.wake_1(kept.id) END IS NULL
