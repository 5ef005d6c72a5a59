-- Begin and peek: claim the operation, or learn what became of it.
--
-- A duplicate reads one row, locks nothing and writes nothing. Only when something must change is
-- the row locked and everything decided again.

CREATE FUNCTION @schema@.begin_1(
    p_now bigint, p_id bytea, p_fingerprint bytea, p_claim boolean,
    p_scope text, p_key text, p_owner text, p_owner_word text, p_token bytea, p_late_from bigint,
    p_lease bigint, p_lease_cap bigint, p_on_lapsed text, p_on_failure text,
    p_back_off_first bigint, p_back_off_max bigint, p_max_attempts bigint,
    p_retention bigint, p_refuse bigint,
    OUT o_answer text, OUT o_fence bigint, OUT o_attempt bigint, OUT o_left bigint,
    OUT o_since bigint, OUT o_reason text, OUT o_outcome bytea,
    OUT o_point_name bytea, OUT o_point_data bytea, OUT o_point_number bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r @schema@.records;
    t bigint;
    kept boolean;
    over boolean;
    locked boolean := false;
    jumped boolean := false;
    -- Whether there is a fence for the claim already.
    given boolean := false;
    ignored text;
BEGIN
    -- Most operations are new: one look finds no record and no crash, and takes a fence.
    IF p_claim AND p_late_from IS NULL THEN
        SELECT nextval('@schema@.fences') INTO o_fence FROM @schema@.no_crash_since
            WHERE NOT EXISTS (SELECT FROM @schema@.records WHERE id = p_id);
        given := FOUND;
    END IF;
    LOOP
        IF given THEN
            kept := false;
        ELSIF locked THEN
            SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE;
            kept := FOUND;
        ELSE
            SELECT * INTO r FROM @schema@.records WHERE id = p_id;
            kept := FOUND;
        END IF;
        t := coalesce(p_now, @schema@.millis_1());

        -- What time has made of it: an ended retention leaves a tombstone or nothing.
        over := NOT kept;
        IF kept AND r.expires_at <= t THEN
            over := r.state = 'tombstone' OR r.refuse IS NULL OR r.expires_at + r.refuse <= t;
            IF NOT over THEN
                o_answer := 'expired';
                o_since := r.expires_at;
                RETURN;
            END IF;
        ELSIF kept AND r.state = 'tombstone' THEN
            o_answer := 'expired';
            o_since := r.changed_at;
            RETURN;
        END IF;

        IF over THEN
            IF NOT p_claim THEN
                o_answer := 'claimable';
                RETURN;
            ELSIF p_late_from <= t THEN
                o_answer := 'expired';
                o_since := p_late_from;
                RETURN;
            END IF;
        ELSE
            o_fence := r.fence;
            -- An earlier try of the same call, whose reply was lost.
            IF r.token = p_token AND t < r.lease_until THEN
                o_answer := 'claimed';
                o_attempt := r.attempt;
                o_left := r.lease_until - t;
                o_point_name := r.point_name;
                o_point_data := r.point_data;
                o_point_number := r.point_number;
                RETURN;
            END IF;
            -- Fingerprints of different versions cannot be compared.
            IF r.fingerprint <> p_fingerprint
                AND get_byte(r.fingerprint, 0) = get_byte(p_fingerprint, 0) THEN
                o_answer := 'mismatch';
                RETURN;
            END IF;
            IF r.state = 'completed' OR r.state = 'failed' THEN
                o_answer := r.state;
                o_outcome := r.outcome;
                o_left := r.expires_at - t;
                RETURN;
            ELSIF r.state = 'unknown' THEN
                o_answer := 'unknown';
                o_since := r.changed_at;
                o_reason := r.reason;
                RETURN;
            ELSIF r.state = 'in_progress' AND t < r.lease_until THEN
                o_answer := 'running';
                o_left := r.lease_until - t;
                RETURN;
            ELSIF r.state = 'waiting' AND t < r.retry_at THEN
                o_answer := 'back_off';
                o_left := r.retry_at - t;
                RETURN;
            ELSIF r.state = 'in_progress' AND r.due IS NOT NULL THEN
                -- Time has made it unknown; a begin writes that down.
                o_answer := 'unknown';
                o_since := r.lease_until;
                o_reason := CASE WHEN r.on_lapsed = 'hold' THEN 'lapsed'
                                 ELSE 'attempts_exhausted' END;
                IF locked THEN
                    PERFORM @schema@.hold_1(p_id, o_since, t, o_reason);
                END IF;
                IF locked OR NOT p_claim THEN
                    RETURN;
                END IF;
            ELSIF NOT p_claim THEN
                o_answer := 'claimable';
                RETURN;
            END IF;
        END IF;

        IF kept AND NOT locked THEN
            locked := true;
            CONTINUE;
        END IF;

        -- The claim. Whether a crash happened is asked before a fence is taken.
        IF NOT given THEN
            SELECT nextval('@schema@.fences') INTO o_fence FROM @schema@.no_crash_since;
            IF NOT FOUND THEN
                jumped := @schema@.jump_1() OR jumped;
                o_fence := nextval('@schema@.fences');
            END IF;
        END IF;
        given := false;
        o_answer := 'claimed';
        o_left := p_lease;
        IF over THEN
            o_attempt := 1;
        ELSE
            -- The attempts before must not be forgotten.
            o_fence := greatest(o_fence, r.fence + 1);
            o_attempt := r.attempt + 1;
            IF r.on_lapsed = 'resume' AND r.point_name IS NOT NULL THEN
                o_point_name := r.point_name;
                o_point_data := r.point_data;
                o_point_number := 0;
            END IF;
        END IF;

        IF NOT kept THEN
            INSERT INTO @schema@.records (
                id, state, fence, attempt, changed_at, due, created_at, scope, key, fingerprint,
                owner, token, claimed_at, lease_until, lease, lease_cap, on_lapsed, on_failure,
                back_off_first, back_off_max, max_attempts, retention, refuse, notes
            ) VALUES (
                p_id, 'in_progress', o_fence, 1, t,
                CASE WHEN p_on_lapsed = 'hold' OR 1 >= p_max_attempts THEN t + p_lease END,
                t, p_scope, p_key, p_fingerprint,
                p_owner, p_token, t, t + p_lease, p_lease, p_lease_cap, p_on_lapsed, p_on_failure,
                p_back_off_first, p_back_off_max, p_max_attempts, p_retention, p_refuse,
                ARRAY[@schema@.note_1(t, o_fence, 'claimed ' || p_owner_word)]
            ) ON CONFLICT (id) DO NOTHING;
            IF FOUND THEN
                -- A first claim that a crash forgets breaks no promise.
                IF p_on_lapsed = 'rerun' AND NOT jumped THEN
                    ignored := set_config('synchronous_commit', 'off', true);
                END IF;
                RETURN;
            END IF;
            -- Somebody was faster.
            CONTINUE;
        END IF;

        UPDATE @schema@.records SET
            state = 'in_progress', fence = o_fence, attempt = o_attempt, changed_at = t,
            due = CASE WHEN p_on_lapsed = 'hold' OR o_attempt >= p_max_attempts
                       THEN t + p_lease END,
            waited = false,
            created_at = CASE WHEN over THEN t ELSE r.created_at END,
            scope = CASE WHEN over THEN p_scope ELSE r.scope END,
            key = CASE WHEN over THEN p_key ELSE r.key END,
            fingerprint = CASE WHEN over THEN p_fingerprint ELSE r.fingerprint END,
            owner = p_owner, token = p_token, claimed_at = t, lease_until = t + p_lease,
            lease = p_lease, lease_cap = p_lease_cap, on_lapsed = p_on_lapsed,
            on_failure = p_on_failure, back_off_first = p_back_off_first,
            back_off_max = p_back_off_max, max_attempts = p_max_attempts,
            retention = p_retention, refuse = p_refuse,
            point_name = o_point_name, point_data = o_point_data, point_number = o_point_number,
            outcome = NULL, retry_at = NULL, expires_at = NULL, reason = NULL,
            notes = CASE
                WHEN over THEN ARRAY[@schema@.note_1(t, o_fence, 'claimed ' || p_owner_word)]
                ELSE @schema@.noted_1(
                    r.notes, @schema@.note_1(t, o_fence, 'taken_over ' || p_owner_word)) END,
            notes_dropped = CASE WHEN over THEN 0
                ELSE r.notes_dropped + @schema@.crowded_1(r.notes) END
        WHERE id = p_id;
        IF r.waited THEN
            PERFORM @schema@.wake_1(p_id);
        END IF;
        IF over AND p_on_lapsed = 'rerun' AND NOT jumped THEN
            ignored := set_config('synchronous_commit', 'off', true);
        END IF;
        RETURN;
    END LOOP;
END $$;

-- Nobody runs it any more: a claim becomes unknown. The row is locked by the caller.
CREATE FUNCTION @schema@.hold_1(p_id bytea, p_since bigint, p_at bigint, p_reason text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    woken boolean;
BEGIN
    UPDATE @schema@.records SET
        state = 'unknown', changed_at = p_since, due = NULL,
        token = NULL, claimed_at = NULL, lease_until = NULL, reason = p_reason,
        notes = @schema@.noted_1(notes, @schema@.note_1(p_at, fence, 'held ' || p_reason)),
        notes_dropped = notes_dropped + @schema@.crowded_1(notes)
    WHERE id = p_id RETURNING waited INTO woken;
    IF woken THEN
        PERFORM @schema@.wake_1(p_id);
    END IF;
END $$;

-- Whether the claim with this fence is running. If it is, its end will be announced.
CREATE FUNCTION @schema@.wait_1(p_now bigint, p_id bytea, p_fence bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
    announced boolean;
BEGIN
    SELECT waited INTO announced FROM @schema@.records
        WHERE id = p_id AND fence = p_fence AND t < lease_until;
    IF NOT FOUND OR announced THEN
        RETURN FOUND;
    END IF;
    -- A crash that forgets this cuts the waiter's connection as well.
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE @schema@.records SET waited = true
        WHERE id = p_id AND fence = p_fence AND t < lease_until;
    RETURN FOUND;
END $$;
