-- An operator gives an outcome up before its retention is over.

-- Expire: what remains is what time would have left. Erase: nothing remains, also no tombstone. Only
-- what has ended, and only under its own fence.
CREATE FUNCTION @schema@.give_up_1(p_now bigint, p_id bytea, p_fence bigint, p_erase boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t bigint;
    r @schema@.records;
    is_over boolean;
BEGIN
    SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    t := coalesce(p_now, @schema@.millis_1());
    is_over := r.state = 'tombstone' OR coalesce(r.expires_at <= t, false);
    IF is_over AND (NOT p_erase OR t >= r.expires_at
        + CASE WHEN r.state = 'tombstone' THEN 0 ELSE coalesce(r.refuse, 0) END) THEN
        RETURN 'gone';
    ELSIF r.fence <> p_fence THEN
        RETURN 'superseded';
    ELSIF NOT is_over AND r.state NOT IN ('completed', 'failed') THEN
        RETURN 'not_ended';
    END IF;
    IF p_erase OR r.refuse IS NULL THEN
        DELETE FROM @schema@.records WHERE id = p_id;
    ELSE
        UPDATE @schema@.records SET
            state = 'tombstone', attempt = 0, changed_at = t,
            expires_at = t + r.refuse, due = t + r.refuse,
            waited = false, created_at = NULL, scope = NULL, key = NULL, fingerprint = NULL,
            refuse = NULL, outcome = NULL, notes = '{}', notes_dropped = 0
        WHERE id = p_id;
    END IF;
    RETURN 'applied';
END $$;
