-- What time demands: retentions end, old tombstones go, lapsed claims are held.

-- With a name: that record. Without: at most so many of those that are due, and none that somebody
-- is working on at this moment, so that nobody waits for a sweep and no sweep for anybody.
CREATE FUNCTION @schema@.sweep_1(
    p_now bigint, p_id bytea, p_limit bigint,
    OUT o_removed bigint, OUT o_buried bigint, OUT o_held bigint, OUT o_due bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
    due_now bytea[] := ARRAY[p_id];
    r record;
BEGIN
    o_removed := 0;
    o_buried := 0;
    o_held := 0;
    IF p_id IS NULL THEN
        due_now := ARRAY(
            SELECT id FROM @schema@.records WHERE due <= t ORDER BY due LIMIT p_limit);
    ELSE
        -- What is locked here is not skipped below.
        PERFORM 1 FROM @schema@.records WHERE id = p_id AND due <= t FOR UPDATE;
    END IF;
    o_due := cardinality(due_now);
    FOR r IN
        SELECT id, state, lease_until, on_lapsed, expires_at, refuse
        FROM @schema@.records WHERE id = ANY (due_now) AND due <= t FOR UPDATE SKIP LOCKED
    LOOP
        IF r.state = 'in_progress' THEN
            PERFORM @schema@.hold_1(r.id, r.lease_until, t,
                CASE WHEN r.on_lapsed = 'hold' THEN 'lapsed' ELSE 'attempts_exhausted' END);
            o_held := o_held + 1;
        ELSIF r.state = 'tombstone' OR r.refuse IS NULL OR r.expires_at + r.refuse <= t THEN
            DELETE FROM @schema@.records WHERE id = r.id;
            o_removed := o_removed + 1;
        ELSE
            UPDATE @schema@.records SET
                state = 'tombstone', attempt = 0, changed_at = r.expires_at,
                expires_at = r.expires_at + r.refuse, due = r.expires_at + r.refuse,
                waited = false, created_at = NULL, scope = NULL, key = NULL, fingerprint = NULL,
                lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
                back_off_first = NULL, back_off_max = NULL, max_attempts = NULL,
                retention = NULL, refuse = NULL,
                point_name = NULL, point_data = NULL, point_number = NULL,
                outcome = NULL, retry_at = NULL, notes = '{}', notes_dropped = 0
            WHERE id = r.id;
            o_buried := o_buried + 1;
        END IF;
    END LOOP;
    -- Only what became unknown must be on disk; the rest is done again if a crash forgets it.
    IF o_held = 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$;

-- Whether a consumer deals with a message for the first time. In the consumer's own transaction:
-- another one with the same message waits until this one has ended.
CREATE FUNCTION @schema@.processed_1(
    p_now bigint, p_subscriber text, p_message text, p_retention bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
BEGIN
    INSERT INTO @schema@.processed AS seen
        VALUES (p_subscriber, p_message, t, t + p_retention)
        ON CONFLICT (subscriber, message) DO UPDATE
            SET seen_at = excluded.seen_at, expires_at = excluded.expires_at
            WHERE seen.expires_at <= t;
    RETURN FOUND;
END $$;

-- Forgets messages whose retention is over.
CREATE FUNCTION @schema@.forget_1(p_now bigint, p_limit bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
    forgotten bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM @schema@.processed WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM @schema@.processed WHERE expires_at <= t
        ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
