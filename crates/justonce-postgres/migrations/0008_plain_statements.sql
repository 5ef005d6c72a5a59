-- The two statements of a first-time operation become plain ones (`sql/claim.sql`,
-- `sql/complete.sql`), and what they call becomes cheap. A function keeps its number where only its
-- price changes.

-- The same rules as before, sorted by state: a row is looked at for its own state only. Every call
-- of a function in here costs in every transaction, so columns are counted, not asked one by one.
CREATE OR REPLACE FUNCTION @schema@.is_sound_1(r @schema@.records) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- The name is a hash, fences were given, the history is bounded.
    IF octet_length(r.id) <> 32 OR r.fence <= 0
        OR cardinality(r.notes) > 16 OR r.notes_dropped < 0 THEN
        RETURN false;
    END IF;
    -- An end when there is one: nobody may run it any more, and time will remove it.
    IF r.state = 'completed' OR r.state = 'failed' THEN
        RETURN num_nulls(r.scope, r.key, r.fingerprint, r.created_at, r.outcome, r.expires_at,
                         r.due) = 0
            AND num_nonnulls(r.owner, r.token, r.lease_until, r.lease, r.retention, r.reason,
                             r.retry_at, r.point_name, r.point_data, r.point_number) = 0
            AND r.attempt >= 0 AND r.expires_at > r.changed_at AND r.due = r.expires_at;
    ELSIF r.state = 'tombstone' THEN
        -- Only a tombstone has lost what it was about.
        RETURN num_nulls(r.expires_at, r.due) = 0
            AND num_nonnulls(r.scope, r.key, r.fingerprint, r.created_at, r.outcome, r.owner,
                             r.token, r.lease_until, r.lease, r.retention, r.reason,
                             r.retry_at, r.point_name, r.point_data, r.point_number) = 0
            AND r.attempt >= 0 AND r.expires_at > r.changed_at AND r.due = r.expires_at;
    END IF;
    -- Whoever may still run has a promise that can be kept, and a recovery point that is whole.
    IF num_nulls(r.scope, r.key, r.fingerprint, r.created_at, r.lease, r.lease_cap, r.on_lapsed,
                 r.on_failure, r.retention) > 0
        OR num_nulls(r.point_name, r.point_data, r.point_number) IN (1, 2)
        OR r.lease <= 0 OR r.lease_cap < r.lease OR r.retention <= 0
        OR r.on_lapsed NOT IN ('rerun', 'resume', 'hold') THEN
        RETURN false;
    END IF;
    IF r.on_failure = 'retry' THEN
        IF coalesce(r.back_off_first > r.back_off_max, true) THEN
            RETURN false;
        END IF;
    ELSIF r.back_off_max IS NOT NULL OR r.on_failure NOT IN ('replay', 'release') THEN
        RETURN false;
    END IF;
    -- A claim while it is in progress, and only then; a reason, or a time to try again, as well.
    IF r.state = 'in_progress' THEN
        RETURN r.attempt > 0
            AND num_nulls(r.owner, r.token, r.claimed_at, r.lease_until) = 0
            AND num_nonnulls(r.outcome, r.expires_at, r.reason, r.retry_at) = 0
            AND r.due IS NOT DISTINCT FROM CASE
                WHEN r.on_lapsed = 'hold' OR r.attempt >= r.max_attempts THEN r.lease_until END;
    ELSIF r.state = 'unknown' THEN
        RETURN r.attempt > 0 AND num_nulls(r.owner, r.reason) = 0
            AND num_nonnulls(r.token, r.lease_until, r.outcome, r.expires_at, r.due,
                             r.retry_at) = 0;
    ELSIF r.state = 'waiting' THEN
        RETURN r.attempt >= 0 AND num_nulls(r.outcome, r.expires_at, r.due, r.retry_at) = 0
            AND num_nonnulls(r.owner, r.token, r.lease_until, r.reason) = 0
            AND r.expires_at > r.changed_at AND r.due = r.expires_at;
    END IF;
    RETURN false;
END $$;

-- The first note is kept for good, then the newest. The new note is named once, so that PostgreSQL
-- puts this text in the place of its call.
CREATE OR REPLACE FUNCTION @schema@.noted_1(notes text[], note text) RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN cardinality(notes) < 16 THEN notes ELSE notes[1:1] || notes[3:] END || note;

-- The server's time when a statement arrived: the same for all of it.
CREATE FUNCTION @schema@.arrived_1() RETURNS bigint LANGUAGE sql STABLE
RETURN floor(date_part('epoch', statement_timestamp()) * 1000)::bigint;

-- Begin and peek, where `sql/claim.sql` has found something in its way: a record, a connection that
-- has not asked for a crash yet, somebody who was faster. As `begin_1`, and with the recovery point
-- that `begin_from_1` brings.
CREATE FUNCTION @schema@.begin_2(
    p_now bigint, p_id bytea, p_fingerprint bytea, p_claim boolean,
    p_scope text, p_key text, p_owner text, p_owner_word text, p_token bytea, p_late_from bigint,
    p_lease bigint, p_lease_cap bigint, p_on_lapsed text, p_on_failure text,
    p_back_off_first bigint, p_back_off_max bigint, p_max_attempts bigint,
    p_retention bigint, p_refuse bigint, p_point_name bytea, p_point_data bytea,
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
        IF locked THEN
            SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE;
        ELSE
            SELECT * INTO r FROM @schema@.records WHERE id = p_id;
        END IF;
        kept := FOUND;
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
