-- A waiter that comes while a claim is being given up.

-- Whether the claim with this fence is running. If it is, its end will be announced. The time is
-- read under the lock of the record: whoever gives the claim up meanwhile ends its lease at once,
-- and at a moment read before that the lease would still run.
CREATE OR REPLACE FUNCTION @schema@.wait_1(p_now bigint, p_id bytea, p_fence bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    announced boolean;
BEGIN
    SELECT waited INTO announced FROM @schema@.records
        WHERE id = p_id AND fence = p_fence AND coalesce(p_now, @schema@.millis_1()) < lease_until;
    IF NOT FOUND OR announced THEN
        RETURN FOUND;
    END IF;
    PERFORM FROM @schema@.records WHERE id = p_id FOR NO KEY UPDATE;
    -- A crash that forgets this cuts the waiter's connection as well.
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE @schema@.records SET waited = true
        WHERE id = p_id AND fence = p_fence AND coalesce(p_now, @schema@.millis_1()) < lease_until;
    RETURN FOUND;
END $$;
