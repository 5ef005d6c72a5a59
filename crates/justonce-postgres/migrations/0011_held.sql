-- Which operations a transaction made unknown, so that whoever took the step knows that it was this
-- one: all ways into *unknown* end here.

-- Nobody runs it any more: a claim becomes unknown. The row is locked by the caller. The setting
-- ends with the transaction; it has a name and a moment for each operation, and a comma after it.
-- Behind the reason, after a blank, may stand what the owner saw: it is for the timeline.
CREATE OR REPLACE FUNCTION @schema@.hold_1(p_id bytea, p_since bigint, p_at bigint, p_reason text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    woken boolean;
BEGIN
    UPDATE @schema@.records SET
        state = 'unknown', changed_at = p_since, due = NULL,
        token = NULL, claimed_at = NULL, lease_until = NULL, reason = split_part(p_reason, ' ', 1),
        notes = @schema@.noted_1(notes, @schema@.note_1(p_at, fence, 'held ' || p_reason)),
        notes_dropped = notes_dropped + @schema@.crowded_1(notes)
    WHERE id = p_id RETURNING waited INTO woken;
    IF woken THEN
        PERFORM @schema@.wake_1(p_id);
    END IF;
    PERFORM set_config('justonce.held',
        coalesce(current_setting('justonce.held', true), '')
            || encode(p_id, 'hex') || ' ' || p_since || ',', true);
END $$;
