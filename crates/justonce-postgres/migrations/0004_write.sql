-- The writes: each carries its fence, and with an old one changes nothing.

CREATE FUNCTION @schema@.write_1(
    p_now bigint, p_id bytea, p_step text, p_fence bigint,
    -- complete, fail and resolve: the reply; fail: whether it may pass, and a random number.
    p_outcome bytea, p_passing boolean, p_jitter bigint,
    -- What a release leaves as its reply.
    p_empty bytea,
    -- checkpoint.
    p_point_name bytea, p_point_data bytea, p_point_number bigint, p_point_word text,
    -- abandon.
    p_reason text,
    -- resolve: completed, failed or released, and who says so and why.
    p_resolution text, p_resolved_words text,
    OUT o_answer text, OUT o_left bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r @schema@.records;
    t bigint;
    held boolean;
    until_then bigint;
    -- What settles it, if anything does.
    ending text;
    reply bytea := p_outcome;
    said text;
    retry bigint;
    expires bigint;
    tried bigint;
    keeps_point boolean := true;
BEGIN
    SELECT * INTO r FROM @schema@.records WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        o_answer := 'gone';
        RETURN;
    END IF;
    t := coalesce(p_now, @schema@.millis_1());
    IF r.state = 'tombstone' OR r.expires_at <= t THEN
        o_answer := 'gone';
        RETURN;
    ELSIF r.fence <> p_fence THEN
        o_answer := 'superseded';
        PERFORM @schema@.refuse_1(p_id, t, p_fence, p_step);
        RETURN;
    END IF;
    held := r.state = 'unknown' OR (r.due IS NOT NULL AND t >= r.lease_until);
    tried := r.attempt;

    IF r.state NOT IN ('in_progress', 'unknown') THEN
        -- A repetition of what ended it changes nothing, anything else is refused.
        o_answer := CASE WHEN CASE
            WHEN r.state = 'completed' THEN
                (p_step = 'complete' OR (p_step = 'resolve' AND p_resolution = 'completed'))
                AND r.outcome = p_outcome
            WHEN r.state = 'failed' THEN
                (p_step = 'fail' OR (p_step = 'resolve' AND p_resolution = 'failed'))
                AND r.outcome = p_outcome
            WHEN p_step = 'fail' THEN
                p_passing AND (r.on_failure = 'release' OR r.outcome = p_outcome)
            WHEN p_step = 'release' OR (p_step = 'resolve' AND p_resolution = 'released') THEN
                r.retry_at = r.changed_at AND r.outcome = p_empty
            ELSE false END THEN 'applied' ELSE 'settled' END;
        IF o_answer = 'settled' THEN
            PERFORM @schema@.refuse_1(p_id, t, p_fence, p_step);
        END IF;
        RETURN;
    ELSIF p_step IN ('renew', 'checkpoint') AND held THEN
        o_answer := 'held';
        PERFORM @schema@.refuse_1(p_id, t, p_fence, p_step);
        RETURN;
    ELSIF p_step = 'resolve' AND NOT held THEN
        o_answer := 'not_unknown';
        PERFORM @schema@.refuse_1(p_id, t, p_fence, p_step);
        RETURN;
    END IF;

    o_answer := 'applied';
    CASE p_step
    WHEN 'renew' THEN
        IF t >= r.claimed_at + r.lease_cap THEN
            o_answer := 'capped';
            RETURN;
        END IF;
        -- A clock that stepped back must not shorten a lease that was already granted.
        until_then := greatest(least(t + r.lease, r.claimed_at + r.lease_cap), r.lease_until);
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE @schema@.records SET lease_until = until_then, changed_at = t,
            due = CASE WHEN due IS NOT NULL THEN until_then END
            WHERE id = p_id;
        o_answer := 'renewed';
        o_left := until_then - t;
        RETURN;
    WHEN 'checkpoint' THEN
        IF p_point_number < r.point_number OR (p_point_number = r.point_number
            AND p_point_name = r.point_name AND p_point_data = r.point_data) THEN
            RETURN;
        END IF;
        UPDATE @schema@.records SET changed_at = t, point_name = p_point_name,
            point_data = p_point_data, point_number = p_point_number,
            notes = @schema@.noted_1(
                notes, @schema@.note_1(t, fence, 'checkpointed ' || p_point_word)),
            notes_dropped = notes_dropped + @schema@.crowded_1(notes)
            WHERE id = p_id;
        RETURN;
    WHEN 'abandon' THEN
        IF r.state = 'unknown' THEN
            RETURN;
        ELSIF r.on_lapsed = 'hold' THEN
            PERFORM @schema@.hold_1(p_id, least(r.lease_until, t), t, p_reason);
            RETURN;
        ELSIF t >= r.lease_until THEN
            RETURN;
        END IF;
        -- The next begin takes over. That is also what happens if a crash forgets it.
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE @schema@.records SET lease_until = t, changed_at = t, waited = false,
            due = CASE WHEN due IS NOT NULL THEN t END,
            notes = @schema@.noted_1(
                notes, @schema@.note_1(t, fence, 'given_up ' || p_reason)),
            notes_dropped = notes_dropped + @schema@.crowded_1(notes)
            WHERE id = p_id;
        IF r.waited THEN
            PERFORM @schema@.wake_1(p_id);
        END IF;
        RETURN;
    WHEN 'complete' THEN
        ending := 'completed';
        said := 'completed';
    WHEN 'fail' THEN
        IF p_passing AND r.on_failure = 'release' THEN
            ending := 'released';
            said := 'released';
        ELSIF p_passing AND r.on_failure = 'retry'
            AND (r.max_attempts IS NULL OR r.attempt < r.max_attempts) THEN
            ending := 'waiting';
            said := 'failed_for_now';
            retry := t + @schema@.back_off_1(
                r.back_off_first, r.back_off_max, r.attempt, p_jitter);
        ELSE
            ending := 'failed';
            said := 'failed_for_good';
        END IF;
    WHEN 'release' THEN
        ending := 'released';
        said := 'released';
    WHEN 'resolve' THEN
        ending := p_resolution;
        said := 'resolved ' || p_resolved_words;
    END CASE;

    IF ending = 'released' THEN
        -- The first attempt leaves nothing behind, unless somebody must see who released it.
        IF r.attempt <= 1 AND p_step <> 'resolve' THEN
            DELETE FROM @schema@.records WHERE id = p_id;
            IF r.waited THEN
                PERFORM @schema@.wake_1(p_id);
            END IF;
            RETURN;
        END IF;
        -- The next begin claims at once. The attempt that did nothing does not count.
        ending := 'waiting';
        reply := p_empty;
        retry := t;
        tried := greatest(r.attempt - 1, 0);
        keeps_point := p_step <> 'resolve';
    END IF;

    -- Counted from the moment it may be tried again: a retry must never come too late.
    expires := coalesce(retry, t) + r.retention;
    IF ending = 'waiting' THEN
        UPDATE @schema@.records SET
            state = 'waiting', attempt = tried, changed_at = t, due = expires,
            owner = NULL, token = NULL, claimed_at = NULL, lease_until = NULL, reason = NULL,
            outcome = reply, retry_at = retry, expires_at = expires,
            point_name = CASE WHEN keeps_point THEN point_name END,
            point_data = CASE WHEN keeps_point THEN point_data END,
            point_number = CASE WHEN keeps_point THEN point_number END,
            notes = @schema@.noted_1(notes, @schema@.note_1(t, fence, said)),
            notes_dropped = notes_dropped + @schema@.crowded_1(notes)
        WHERE id = p_id;
    ELSE
        UPDATE @schema@.records SET
            state = ending, changed_at = t, due = expires,
            owner = NULL, token = NULL, claimed_at = NULL, lease_until = NULL, reason = NULL,
            lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
            back_off_first = NULL, back_off_max = NULL, max_attempts = NULL, retention = NULL,
            point_name = NULL, point_data = NULL, point_number = NULL,
            outcome = reply, expires_at = expires,
            notes = @schema@.noted_1(notes, @schema@.note_1(t, fence, said)),
            notes_dropped = notes_dropped + @schema@.crowded_1(notes)
        WHERE id = p_id;
    END IF;
    IF r.waited THEN
        PERFORM @schema@.wake_1(p_id);
    END IF;
END $$;

-- A refused write leaves a note for the operator and changes nothing else. Its fence may be any
-- number of 64 bits; the upper half of them comes as negative ones.
CREATE FUNCTION @schema@.refuse_1(p_id bytea, p_at bigint, p_fence bigint, p_step text)
RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
    UPDATE @schema@.records SET
        notes = @schema@.noted_1(notes, p_at::text || ' '
            || (p_fence + CASE WHEN p_fence < 0 THEN 18446744073709551616 ELSE 0 END)::text
            || ' refused ' || p_step),
        notes_dropped = notes_dropped + @schema@.crowded_1(notes)
    WHERE id = p_id;
END;

-- Complete, as it nearly always goes: the claim is the caller's. Otherwise as any write.
CREATE FUNCTION @schema@.complete_1(p_now bigint, p_id bytea, p_fence bigint, p_outcome bytea)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t bigint := coalesce(p_now, @schema@.millis_1());
    woken boolean;
BEGIN
    UPDATE @schema@.records SET
        state = 'completed', changed_at = t, due = t + retention,
        owner = NULL, token = NULL, claimed_at = NULL, lease_until = NULL, reason = NULL,
        lease = NULL, lease_cap = NULL, on_lapsed = NULL, on_failure = NULL,
        back_off_first = NULL, back_off_max = NULL, max_attempts = NULL, retention = NULL,
        point_name = NULL, point_data = NULL, point_number = NULL,
        outcome = p_outcome, expires_at = t + retention,
        notes = @schema@.noted_1(notes, @schema@.note_1(t, fence, 'completed')),
        notes_dropped = notes_dropped + @schema@.crowded_1(notes)
    WHERE id = p_id AND fence = p_fence AND state IN ('in_progress', 'unknown')
    RETURNING waited INTO woken;
    IF NOT FOUND THEN
        RETURN (@schema@.write_1(p_now, p_id, 'complete', p_fence, p_outcome, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL)).o_answer;
    END IF;
    IF woken THEN
        PERFORM @schema@.wake_1(p_id);
    END IF;
    RETURN 'applied';
END $$;
