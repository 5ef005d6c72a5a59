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
    notes_dropped bigint  NOT NULL DEFAULT 0,

    CONSTRAINT id_is_a_hash CHECK (octet_length(id) = 32),
    CONSTRAINT state_is_known CHECK (
        state IN ('in_progress', 'completed', 'failed', 'waiting', 'unknown', 'tombstone')),
    CONSTRAINT fence_was_given CHECK (fence > 0),
    CONSTRAINT attempt_was_made CHECK (
        attempt >= CASE WHEN state IN ('waiting', 'tombstone') THEN 0 ELSE 1 END),
    CONSTRAINT subject_unless_tombstone CHECK (
        num_nonnulls(created_at, scope, key, fingerprint)
        = CASE WHEN state = 'tombstone' THEN 0 ELSE 4 END),
    CONSTRAINT claim_while_in_progress CHECK (
        num_nonnulls(token, claimed_at, lease_until)
        = CASE WHEN state = 'in_progress' THEN 3 ELSE 0 END),
    CONSTRAINT owner_while_open CHECK (
        (owner IS NOT NULL) = (state IN ('in_progress', 'unknown'))),
    CONSTRAINT promise_while_open CHECK (
        num_nonnulls(lease, lease_cap, on_lapsed, on_failure, retention)
        = CASE WHEN state IN ('in_progress', 'unknown', 'waiting') THEN 5 ELSE 0 END),
    CONSTRAINT lease_is_capped CHECK (lease > 0 AND lease_cap >= lease),
    CONSTRAINT rules_are_known CHECK (
        on_lapsed IN ('rerun', 'resume', 'hold')
        AND on_failure IN ('replay', 'release', 'retry')),
    CONSTRAINT back_off_if_retried CHECK (
        num_nonnulls(back_off_first, back_off_max)
        = CASE WHEN on_failure = 'retry' THEN 2 ELSE 0 END),
    CONSTRAINT point_is_whole CHECK (
        num_nonnulls(point_name, point_data, point_number) IN (0, 3)),
    CONSTRAINT point_while_open CHECK (
        point_name IS NULL OR state IN ('in_progress', 'unknown', 'waiting')),
    CONSTRAINT outcome_once_ended CHECK (
        (outcome IS NOT NULL) = (state IN ('completed', 'failed', 'waiting'))),
    CONSTRAINT reason_while_unknown CHECK ((reason IS NOT NULL) = (state = 'unknown')),
    CONSTRAINT retry_while_waiting CHECK ((retry_at IS NOT NULL) = (state = 'waiting')),
    CONSTRAINT expires_once_ended CHECK (
        (expires_at IS NOT NULL) = (state NOT IN ('in_progress', 'unknown'))
        AND (expires_at IS NULL OR expires_at > changed_at)),
    CONSTRAINT due_when_time_demands CHECK (
        due IS NOT DISTINCT FROM CASE
            WHEN state = 'in_progress' THEN CASE
                WHEN on_lapsed = 'hold' OR attempt >= max_attempts THEN lease_until END
            ELSE expires_at END),
    CONSTRAINT notes_are_bounded CHECK (cardinality(notes) <= 16 AND notes_dropped >= 0)
) WITH (
    -- Room for renewals and notes beside the row they change.
    fillfactor = 90,
    -- Every operation leaves a dead row and, after its retention, another: clean up early, and in
    -- small portions.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

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
