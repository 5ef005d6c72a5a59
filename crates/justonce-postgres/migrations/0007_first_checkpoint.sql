-- A begin that brings the recovery point its claim starts with, unless one is handed over to it.

CREATE FUNCTION @schema@.begin_from_1(
    p_now bigint, p_id bytea, p_fingerprint bytea, p_claim boolean,
    p_scope text, p_key text, p_owner text, p_owner_word text, p_token bytea, p_late_from bigint,
    p_lease bigint, p_lease_cap bigint, p_on_lapsed text, p_on_failure text,
    p_back_off_first bigint, p_back_off_max bigint, p_max_attempts bigint,
    p_retention bigint, p_refuse bigint, p_point_name bytea, p_point_data bytea,
    OUT o_answer text, OUT o_fence bigint, OUT o_attempt bigint, OUT o_left bigint,
    OUT o_since bigint, OUT o_reason text, OUT o_outcome bytea,
    OUT o_point_name bytea, OUT o_point_data bytea, OUT o_point_number bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO o_answer, o_fence, o_attempt, o_left, o_since, o_reason, o_outcome,
                  o_point_name, o_point_data, o_point_number
    FROM @schema@.begin_1(
        p_now, p_id, p_fingerprint, p_claim, p_scope, p_key, p_owner, p_owner_word, p_token,
        p_late_from, p_lease, p_lease_cap, p_on_lapsed, p_on_failure, p_back_off_first,
        p_back_off_max, p_max_attempts, p_retention, p_refuse);
    IF o_answer <> 'claimed' OR o_point_name IS NOT NULL THEN
        RETURN;
    END IF;
    -- An earlier try of the same call was granted in another transaction: it stays as it is.
    UPDATE @schema@.records
        SET point_name = p_point_name, point_data = p_point_data, point_number = 0
        WHERE id = p_id AND xmin = pg_current_xact_id()::xid;
    IF FOUND THEN
        o_point_name := p_point_name;
        o_point_data := p_point_data;
        o_point_number := 0;
    END IF;
END $$;
