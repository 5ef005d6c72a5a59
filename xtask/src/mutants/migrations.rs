//! Mutants of what the migrations of the PostgreSQL store leave, by file and function.

use super::mutant::{Mutant, mutant};

const RECORDS: &str = "migrations/0001_records.sql";
const BEGIN: &str = "migrations/0010_bounded.sql#begin_3";
const WRITE: &str = "migrations/0004_write.sql#write_1";
const SOUND: &str = "migrations/0008_plain_statements.sql#is_sound_1";
const GIVE_UP: &str = "migrations/0009_expire.sql#give_up_1";

/// The mutants of tables, indexes and functions.
pub(super) const MIGRATIONS: &[Mutant] = &[
    mutant(RECORDS, "CHECK (@schema@.is_sound_1(records))", "CHECK (true)").by("damage::"),
    mutant(RECORDS, "CREATE UNLOGGED TABLE", "CREATE TABLE").by("production::"),
    mutant(RECORDS, "CREATE INDEX records_due ⋯;\n", "").by("growth::"),
    mutant(RECORDS, "CREATE INDEX records_unknown ⋯;\n", "").by("growth::"),
    mutant(
        RECORDS,
        "    CONSTRAINT expires_after_seen CHECK (expires_at > seen_at)\n",
        "CHECK (true)",
    )
    .by("transactional::"),
    mutant("migrations/0002_tools.sql#millis_1", "* 1000", "* 1000 - 3600000"),
    mutant("migrations/0002_tools.sql#note_1", "fence::text", "(fence - 1)::text"),
    mutant("migrations/0002_tools.sql#crowded_1", "THEN 0 ELSE 1", "THEN 0 ELSE 0"),
    mutant("migrations/0002_tools.sql#back_off_1", "* jitter, 4294967295", ", 4294967295"),
    mutant("migrations/0002_tools.sql#back_off_1", "least(greatest(attempt - 1, 0), 63)", "0"),
    mutant("migrations/0002_tools.sql#jump_1", " + far_beyond", "").by("production::"),
    mutant("migrations/0002_tools.sql#jump_1", "    LOCK TABLE ⋯ MODE;\n", "").by("production::"),
    mutant("migrations/0002_tools.sql#wake_1", "pg_notify(@channel@, encode(id, 'hex'))", "NULL"),
    mutant(WRITE, " OR r.expires_at <= t THEN", " THEN"),
    mutant(WRITE, "r.fence <> p_fence", "r.fence < p_fence"),
    mutant(WRITE, "(r.due IS NOT NULL AND t >= r.lease_until)", "false"),
    mutant(
        WRITE,
        "WHEN r.state = 'completed' THEN⋯AND r.outcome = p_outcome\n",
        "WHEN r.state = 'completed' THEN true\n",
    ),
    mutant(WRITE, "p_passing AND (r.on_failure = 'release' OR r.outcome = p_outcome)", "p_passing"),
    mutant(WRITE, "r.retry_at = r.changed_at AND ", ""),
    mutant(WRITE, "p_step IN ('renew', 'checkpoint') AND held", "false"),
    mutant(WRITE, "t >= r.claimed_at + r.lease_cap", "false"),
    mutant(WRITE, "least(t + r.lease, r.claimed_at + r.lease_cap)", "t + r.lease"),
    mutant(
        WRITE,
        ", r.claimed_at + r.lease_cap), r.lease_until)",
        ", r.claimed_at + r.lease_cap), 0)",
    ),
    mutant(WRITE, "p_point_number < r.point_number OR ", ""),
    mutant(WRITE, "least(r.lease_until, t)", "t"),
    mutant(
        WRITE,
        "lease_until = t, changed_at = t, waited = false",
        "lease_until = t, changed_at = t",
    ),
    mutant(WRITE, "(r.max_attempts IS NULL OR r.attempt < r.max_attempts)", "true"),
    mutant(WRITE, "r.attempt <= 1 AND p_step <> 'resolve'", "false"),
    mutant(WRITE, "greatest(r.attempt - 1, 0)", "r.attempt"),
    mutant(WRITE, "keeps_point := p_step <> 'resolve'", "keeps_point := true"),
    mutant(WRITE, "coalesce(retry, t) + r.retention", "t + r.retention"),
    mutant(WRITE, "DELETE FROM @schema@.records WHERE id = p_id;\n", ""),
    mutant("migrations/0004_write.sql#refuse_1", " + CASE WHEN p_fence < 0 ⋯ END", ""),
    mutant("migrations/0004_write.sql#refuse_1", "WHERE id = p_id", "WHERE false"),
    mutant("migrations/0004_write.sql#complete_1", "AND fence = p_fence ", ""),
    mutant("migrations/0004_write.sql#complete_1", "AND state IN ('in_progress', 'unknown')", ""),
    mutant(
        "migrations/0004_write.sql#complete_1",
        "        PERFORM @schema@.wake_1(p_id);\n",
        "NULL;",
    )
    .by("transactional::"),
    mutant(
        "migrations/0005_sweep.sql#processed_1",
        "            WHERE seen.expires_at <= t;\n",
        ";",
    )
    .by("transactional::"),
    mutant("migrations/0005_sweep.sql#processed_1", "DO UPDATE⋯t;\n", "DO NOTHING;")
        .by("transactional::"),
    mutant("migrations/0005_sweep.sql#forget_1", "WHERE expires_at <= t\n", "\n")
        .by("transactional::"),
    mutant("migrations/0005_sweep.sql#forget_1", " LIMIT p_limit", "").by("transactional::"),
    mutant("migrations/0006_guard.sql#guard_fence_1", "NEW.fence < OLD.fence", "false")
        .by("transactional::"),
    mutant(SOUND, "octet_length(r.id) <> 32 OR ", "").by("damage::"),
    mutant(SOUND, "    RETURN false;\nEND", "    RETURN true;\nEND").by("damage::"),
    mutant(
        SOUND,
        " AND r.due = r.expires_at;\n    ELSIF r.state = 'tombstone'",
        ";\n    ELSIF r.state = 'tombstone'",
    )
    .by("damage::"),
    mutant("migrations/0008_plain_statements.sql#noted_1", "notes[1:1] || notes[3:]", "notes[2:]"),
    mutant("migrations/0008_plain_statements.sql#noted_1", "< 16", "< 15"),
    mutant("migrations/0008_plain_statements.sql#arrived_1", "* 1000", "* 1000 - 3600000"),
    mutant(GIVE_UP, "r.fence <> p_fence", "false"),
    mutant(GIVE_UP, "NOT is_over AND ", "is_over AND "),
    mutant(GIVE_UP, "coalesce(r.refuse, 0)", "0"),
    mutant(GIVE_UP, "p_erase OR r.refuse IS NULL", "r.refuse IS NULL"),
    mutant(
        GIVE_UP,
        "expires_at = t + r.refuse, due = t + r.refuse",
        "expires_at = t + 1, due = t + 1",
    ),
    mutant(GIVE_UP, "        DELETE FROM @schema@.records WHERE id = p_id;\n", "NULL;"),
    mutant("migrations/0010_bounded.sql", "CREATE INDEX IF NOT EXISTS records_claims_due ⋯;\n", "")
        .by("growth::"),
    mutant(
        "migrations/0010_bounded.sql",
        "CREATE INDEX IF NOT EXISTS records_claims_free ⋯;\n",
        "",
    )
    .by("growth::"),
    mutant("migrations/0010_bounded.sql", "CREATE INDEX IF NOT EXISTS records_failed ⋯;\n", "")
        .by("growth::"),
    mutant("migrations/0010_bounded.sql", "ALTER FUNCTION @schema@.complete_1⋯;\n", "")
        .by("plans::"),
    mutant("migrations/0010_bounded.sql", "ALTER FUNCTION @schema@.processed_1⋯;\n", "")
        .by("plans::"),
    mutant(BEGIN, "IF locked AND p_wait THEN", "IF locked THEN").by("locked::"),
    mutant(BEGIN, "FOR UPDATE;\n            kept", ";\n            kept").by("conformance::"),
    mutant(
        BEGIN,
        "r.state = 'tombstone' OR r.refuse IS NULL OR r.expires_at + r.refuse <= t",
        "true",
    ),
    mutant(BEGIN, "p_late_from <= t", "false"),
    mutant(BEGIN, "r.token = p_token AND t < r.lease_until", "false"),
    mutant(BEGIN, "r.token = p_token AND t < r.lease_until", "r.token = p_token"),
    mutant(
        BEGIN,
        "r.fingerprint <> p_fingerprint\n                AND ",
        "r.fingerprint <> p_fingerprint AND false AND ",
    ),
    mutant(
        BEGIN,
        "                AND get_byte(r.fingerprint, 0) = get_byte(p_fingerprint, 0)",
        "",
    ),
    mutant(BEGIN, "t < r.retry_at", "false"),
    mutant(
        BEGIN,
        "                    PERFORM @schema@.hold_1(p_id, o_since, t, o_reason);\n",
        "NULL;",
    ),
    mutant(BEGIN, "jumped := @schema@.jump_1() OR jumped;", "").by("production::"),
    mutant(BEGIN, "ignored := set_config('justonce.no_crash_in', @channel@, false);", "")
        .by("cost::"),
    mutant(BEGIN, "greatest(o_fence, r.fence + 1)", "o_fence"),
    mutant(BEGIN, "o_attempt := r.attempt + 1", "o_attempt := r.attempt"),
    mutant(BEGIN, "r.on_lapsed = 'resume' AND ", ""),
    mutant(
        BEGIN,
        "IF o_point_name IS NULL AND p_point_name IS NOT NULL",
        "IF p_point_name IS NOT NULL",
    ),
    mutant(BEGIN, "IF p_on_lapsed = 'rerun' AND NOT jumped", "IF NOT jumped").by("production::"),
    mutant(BEGIN, "IF over AND p_on_lapsed = 'rerun' AND NOT jumped", "IF NOT jumped")
        .by("production::"),
    mutant(BEGIN, "            -- Somebody was faster.\n            CONTINUE;\n", "RETURN;"),
    mutant(BEGIN, "            waited = false,\n", ""),
    mutant(BEGIN, "            PERFORM @schema@.wake_1(p_id);\n", "NULL;"),
    mutant(BEGIN, "created_at = CASE WHEN over THEN t ELSE r.created_at END", "created_at = t"),
    mutant(
        BEGIN,
        "notes_dropped = CASE WHEN over THEN 0\n                ELSE",
        "notes_dropped = CASE WHEN false THEN 0 ELSE",
    ),
    mutant("migrations/0010_bounded.sql#sweep_2", " AND id <> ALL (p_skipped)", "").by("damage::"),
    mutant("migrations/0010_bounded.sql#sweep_2", " LIMIT p_limit", ""),
    mutant("migrations/0010_bounded.sql#sweep_2", "o_damaged := o_damaged || one;", "")
        .by("damage::"),
    mutant("migrations/0010_bounded.sql#sweep_2", "IF o_held = 0 THEN", "IF true THEN")
        .by("production::"),
    mutant("migrations/0010_bounded.sql#sweep_one_1", "FOR UPDATE SKIP LOCKED", "FOR UPDATE")
        .by("sweeping::"),
    mutant(
        "migrations/0010_bounded.sql#sweep_one_1",
        "r.refuse IS NULL OR r.expires_at + r.refuse <= p_at",
        "true",
    ),
    mutant(
        "migrations/0010_bounded.sql#sweep_one_1",
        "changed_at = r.expires_at",
        "changed_at = p_at",
    ),
    mutant("migrations/0010_bounded.sql#sweep_one_1", "AND due + 0 <= p_at", ""),
    mutant("migrations/0011_held.sql#hold_1", "changed_at = p_since", "changed_at = p_at"),
    mutant("migrations/0011_held.sql#hold_1", "        PERFORM @schema@.wake_1(p_id);\n", "NULL;"),
    mutant("migrations/0011_held.sql#hold_1", "split_part(p_reason, ' ', 1)", "p_reason"),
    mutant(
        "migrations/0011_held.sql#hold_1",
        "coalesce(current_setting('justonce.held', true), '')\n            || ",
        "",
    ),
    mutant("migrations/0012_wait.sql#wait_1", "SET waited = true", "SET waited = false"),
    mutant("migrations/0012_wait.sql#wait_1", "    PERFORM FROM @schema@.records ⋯;\n", "")
        .by("waiting::"),
    mutant("migrations/0012_wait.sql#wait_1", "    IF NOT FOUND OR announced THEN⋯END IF;\n", "")
        .by("waiting::"),
];
