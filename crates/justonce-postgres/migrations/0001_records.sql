-- What the store keeps. Times and durations are whole milliseconds; times count from 1970.

CREATE TABLE @schema@.records (
    id            bytea   PRIMARY KEY,
    -- in_progress, completed, failed (for good), waiting (failed, may be tried again), unknown,
    -- tombstone.
    state         text    NOT NULL,
    fence         bigint  NOT NULL,
    attempt       bigint  NOT NULL,
    -- For a tombstone: when the retention ended.
    changed_at    bigint  NOT NULL,
    -- When time alone demands something of this row: a sweep looks here.
    due           bigint,
    -- Whether somebody waits for the running claim: only then its end is announced.
    waited        boolean NOT NULL DEFAULT false,

    -- Which operation it is.
    created_at    bigint,
    scope         text,
    key           text,
    fingerprint   bytea,

    -- The claim.
    owner         text,
    token         bytea,
    claimed_at    bigint,
    lease_until   bigint,

    -- The promise.
    lease         bigint,
    lease_cap     bigint,
    on_lapsed     text,
    on_failure    text,
    back_off_first bigint,
    back_off_max  bigint,
    max_attempts  bigint,
    retention     bigint,
    -- How long late arrivals are refused after the retention; nothing if they are new operations.
    refuse        bigint,

    -- The last recovery point. Its name may hold any character, so it is kept as bytes.
    point_name    bytea,
    point_data    bytea,
    point_number  bigint,

    -- The end.
    outcome       bytea,
    retry_at      bigint,
    expires_at    bigint,
    reason        text,

    -- The history: moment, fence, what happened, words.
    notes         text[]  NOT NULL DEFAULT '{}',
    notes_dropped bigint  NOT NULL DEFAULT 0
) WITH (
    -- Room for renewals and notes beside the row they change.
    fillfactor = 90,
    -- Every operation leaves a dead row and, after its retention, another: clean up early, and in
    -- small portions.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- What must hold of every row, whatever program writes it. One function instead of a constraint
-- for each line: PostgreSQL reads the text of every constraint again for every statement, and
-- those would cost more than all the rest of a step.
CREATE FUNCTION @schema@.is_sound_1(r @schema@.records) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- The name is a hash, fences were given, attempts were made, the history is bounded.
    IF octet_length(r.id) <> 32 OR r.fence <= 0 OR r.attempt < 0
        OR cardinality(r.notes) > 16 OR r.notes_dropped < 0 THEN
        RETURN false;
    END IF;
    -- A recovery point is whole.
    IF (r.point_name IS NULL) <> (r.point_data IS NULL)
        OR (r.point_name IS NULL) <> (r.point_number IS NULL) THEN
        RETURN false;
    END IF;
    -- Only a tombstone has lost what it was about, only what is unknown has a reason, only what
    -- waits has a time to try again.
    IF (r.state = 'tombstone') <> (r.scope IS NULL) OR (r.scope IS NULL) <> (r.key IS NULL)
        OR (r.scope IS NULL) <> (r.fingerprint IS NULL)
        OR (r.scope IS NULL) <> (r.created_at IS NULL)
        OR (r.state = 'unknown') <> (r.reason IS NOT NULL)
        OR (r.state = 'waiting') <> (r.retry_at IS NOT NULL) THEN
        RETURN false;
    END IF;
    -- Whoever may still run has an owner and a promise that can be kept.
    IF r.state IN ('in_progress', 'unknown', 'waiting') THEN
        IF (r.state = 'waiting') <> (r.owner IS NULL)
            OR NOT coalesce(r.lease > 0 AND r.lease_cap >= r.lease AND r.retention > 0
                AND r.on_lapsed IN ('rerun', 'resume', 'hold'), false)
            OR (CASE r.on_failure
                WHEN 'retry' THEN coalesce(r.back_off_first > r.back_off_max, true)
                WHEN 'replay' THEN r.back_off_max IS NOT NULL
                WHEN 'release' THEN r.back_off_max IS NOT NULL
                ELSE true END) THEN
            RETURN false;
        END IF;
    ELSIF r.owner IS NOT NULL OR r.lease IS NOT NULL OR r.retention IS NOT NULL
        OR r.point_name IS NOT NULL THEN
        RETURN false;
    END IF;
    -- A claim while it is in progress, and only then; an end when there is one, and only then.
    CASE r.state
    WHEN 'in_progress' THEN
        RETURN r.attempt > 0 AND r.token IS NOT NULL AND r.claimed_at IS NOT NULL
            AND r.lease_until IS NOT NULL AND r.outcome IS NULL AND r.expires_at IS NULL
            AND r.due IS NOT DISTINCT FROM CASE
                WHEN r.on_lapsed = 'hold' OR r.attempt >= r.max_attempts THEN r.lease_until END;
    WHEN 'unknown' THEN
        RETURN r.attempt > 0 AND r.token IS NULL AND r.lease_until IS NULL
            AND r.outcome IS NULL AND r.expires_at IS NULL AND r.due IS NULL;
    WHEN 'completed', 'failed', 'waiting', 'tombstone' THEN
        RETURN r.token IS NULL AND r.lease_until IS NULL
            AND (r.state = 'tombstone') = (r.outcome IS NULL)
            AND coalesce(r.expires_at > r.changed_at AND r.due = r.expires_at, false);
    ELSE
        RETURN false;
    END CASE;
END $$;

ALTER TABLE @schema@.records
    ADD CONSTRAINT is_sound CHECK (@schema@.is_sound_1(records));

-- Outcomes are compressed before they come here.
ALTER TABLE @schema@.records ALTER COLUMN outcome SET STORAGE EXTERNAL;

CREATE INDEX records_due ON @schema@.records (due) WHERE due IS NOT NULL;
CREATE INDEX records_unknown ON @schema@.records (id) WHERE state = 'unknown';

-- Fences grow and never repeat.
CREATE SEQUENCE @schema@.fences AS bigint;

-- Claims that a crash may forget are committed without waiting for the disk, and with them the
-- sequence's own log. A crash empties an unlogged table, so whoever finds this one empty makes
-- the sequence jump beyond everything that may have been given and forgotten.
CREATE UNLOGGED TABLE @schema@.no_crash_since (
    yes boolean PRIMARY KEY CHECK (yes)
);
INSERT INTO @schema@.no_crash_since VALUES (true);

-- Messages that consumers have dealt with.
CREATE TABLE @schema@.processed (
    subscriber text   NOT NULL,
    message    text   NOT NULL,
    seen_at    bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (subscriber, message),
    CONSTRAINT expires_after_seen CHECK (expires_at > seen_at)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX processed_expires ON @schema@.processed (expires_at);
