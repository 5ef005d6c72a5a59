-- Listings and gauges read what they are about, and nothing else; a record that somebody else has
-- keeps nobody waiting who need not wait; one that is damaged stops no sweep.
--
-- On a large table the indexes take a while, and writes wait for it. Whoever cannot have that makes
-- them before, with the same names, by CREATE INDEX CONCURRENTLY: then nothing is left to do here.

-- Claims that become unknown when they lapse, and those that do not: each claim is in one of the two.
CREATE INDEX IF NOT EXISTS records_claims_due ON @schema@.records (id)
    WHERE state = 'in_progress' AND due IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_claims_free ON @schema@.records (id)
    WHERE state = 'in_progress' AND due IS NULL;
CREATE INDEX IF NOT EXISTS records_failed ON @schema@.records (id)
    WHERE state IN ('failed', 'waiting');

-- What is called in a caller's own transaction finds its record by its name, whatever the server
-- knows, or does not know yet, about the table. Connections of our own have the same setting.
ALTER FUNCTION @schema@.complete_1(bigint, bytea, bigint, bytea) SET enable_seqscan = off;
ALTER FUNCTION @schema@.processed_1(bigint, text, text, bigint) SET enable_seqscan = off;
ALTER FUNCTION @schema@.write_1(
    bigint, bytea, text, bigint, bytea, boolean, bigint, bytea, bytea, bytea, bigint, text, text,
    text, text) SET enable_seqscan = off;

-- As `begin_2`. Where it needs a record that somebody else has locked, it waits only if it is told
-- to: whoever goes together with others must not keep them.
CREATE FUNCTION @schema@.begin_3(
    p_now bigint, p_id bytea, p_fingerprint bytea, p_claim boolean,
    p_scope text, p_key text, p_owner text, p_owner_word text, p_token bytea, p_late_from bigint,
    p_lease bigint, p_lease_cap bigint, p_on_lapsed text, p_on_failure text,
    p_back_off_first bigint, p_back_off_max bigint, p_max_attempts bigint,
    p_retention bigint, p_refuse bigint, p_point_name bytea, p_point_data bytea, p_wait boolean,
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
    ignored text;
BEGIN
    LOOP
        IF locked AND p_wait THEN
            SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE;
            kept := FOUND;
        ELSIF locked THEN
            SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE SKIP LOCKED;
            kept := FOUND;
            -- What is not found is gone, or somebody else has it.
            IF NOT kept AND EXISTS (SELECT FROM @schema@.records WHERE id = p_id) THEN
                o_answer := 'locked';
                o_fence := NULL;
                RETURN;
            END IF;
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
        SELECT nextval('@schema@.fences') INTO o_fence FROM @schema@.no_crash_since;
        IF NOT FOUND THEN
            jumped := @schema@.jump_1() OR jumped;
            o_fence := nextval('@schema@.fences');
        END IF;
        -- A crash would end this connection: it need not ask again.
        ignored := set_config('justonce.no_crash_in', @channel@, false);
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
        -- The recovery point that the claim brings, unless one is handed over to it.
        IF o_point_name IS NULL AND p_point_name IS NOT NULL THEN
            o_point_name := p_point_name;
            o_point_data := p_point_data;
            o_point_number := 0;
        END IF;

        IF NOT kept THEN
            INSERT INTO @schema@.records (
                id, state, fence, attempt, changed_at, due, created_at, scope, key, fingerprint,
                owner, token, claimed_at, lease_until, lease, lease_cap, on_lapsed, on_failure,
                back_off_first, back_off_max, max_attempts, retention, refuse,
                point_name, point_data, point_number, notes
            ) VALUES (
                p_id, 'in_progress', o_fence, 1, t,
                CASE WHEN p_on_lapsed = 'hold' OR 1 >= p_max_attempts THEN t + p_lease END,
                t, p_scope, p_key, p_fingerprint,
                p_owner, p_token, t, t + p_lease, p_lease, p_lease_cap, p_on_lapsed, p_on_failure,
                p_back_off_first, p_back_off_max, p_max_attempts, p_retention, p_refuse,
                o_point_name, o_point_data, o_point_number,
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

-- As `sweep_1`. One record that cannot be dealt with would stop all others, so there is a careful way
-- that deals with each by itself: it takes longer. `p_skipped` are those that are known to be
-- damaged; `o_damaged` are those that were found to be.
CREATE FUNCTION @schema@.sweep_2(
    p_now bigint, p_id bytea, p_limit bigint, p_careful boolean, p_skipped bytea[],
    OUT o_removed bigint, OUT o_buried bigint, OUT o_held bigint, OUT o_due bigint,
    OUT o_damaged bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
    due_now bytea[] := ARRAY[p_id];
    one bytea;
    done text;
BEGIN
    o_removed := 0;
    o_buried := 0;
    o_held := 0;
    o_damaged := '{}';
    IF p_id IS NULL THEN
        due_now := ARRAY(
            SELECT id FROM @schema@.records WHERE due <= t AND id <> ALL (p_skipped)
            ORDER BY due LIMIT p_limit);
    ELSE
        -- What is locked here is not skipped below.
        PERFORM 1 FROM @schema@.records WHERE id = p_id AND due <= t FOR UPDATE;
    END IF;
    o_due := cardinality(due_now);
    FOREACH one IN ARRAY due_now LOOP
        IF p_careful THEN
            BEGIN
                done := @schema@.sweep_one_1(t, one);
            EXCEPTION
                WHEN data_exception OR integrity_constraint_violation OR internal_error
                    OR plpgsql_error THEN
                    done := 'damaged';
                    o_damaged := o_damaged || one;
            END;
        ELSE
            done := @schema@.sweep_one_1(t, one);
        END IF;
        CASE done
            WHEN 'removed' THEN o_removed := o_removed + 1;
            WHEN 'buried' THEN o_buried := o_buried + 1;
            WHEN 'held' THEN o_held := o_held + 1;
            ELSE NULL;
        END CASE;
    END LOOP;
    -- Only what became unknown must be on disk; the rest is done again if a crash forgets it.
    IF o_held = 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END $$;

-- What time demands of one record, unless somebody is working on it at this moment.
CREATE FUNCTION @schema@.sweep_one_1(p_at bigint, p_id bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    -- Found by its name, and by no index of what is due: there may be much of it.
    SELECT state, lease_until, on_lapsed, expires_at, refuse INTO r
        FROM @schema@.records WHERE id = p_id AND due + 0 <= p_at FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 'kept';
    ELSIF r.state = 'in_progress' THEN
        PERFORM @schema@.hold_1(p_id, r.lease_until, p_at,
            CASE WHEN r.on_lapsed = 'hold' THEN 'lapsed' ELSE 'attempts_exhausted' END);
        RETURN 'held';
    ELSIF r.state = 'tombstone' OR r.refuse IS NULL OR r.expires_at + r.refuse <= p_at THEN
        DELETE FROM @schema@.records WHERE id = p_id;
        RETURN 'removed';
    END IF;
    UPDATE @schema@.records SET
        state = 'tombstone', attempt = 0, changed_at = r.expires_at,
        expires_at = r.expires_at + r.refuse, due = r.expires_at + r.refuse,
        waited = false, created_at = NULL, scope = NULL, key = NULL, fingerprint = NULL,
        lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
        back_off_first = NULL, back_off_max = NULL, max_attempts = NULL,
        retention = NULL, refuse = NULL,
        point_name = NULL, point_data = NULL, point_number = NULL,
        outcome = NULL, retry_at = NULL, notes = '{}', notes_dropped = 0
    WHERE id = p_id;
    RETURN 'buried';
END $$;
