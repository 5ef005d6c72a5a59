//! Mutants of the statements of the PostgreSQL store, by file.

use super::mutant::{Mutant, mutant};

/// The mutants of the statements.
pub(super) const STATEMENTS: &[Mutant] = &[
    // What acknowledges and writes nothing comes first.
    mutant(
        "sql/complete_batch.sql",
        "UPDATE ⋯RETURNING done.place, CASE ⋯ IS NULL",
        "SELECT done.place, $1::bigint IS NULL\n\
         FROM unnest($2::bytea[], $3::bigint[], $4::bytea[])\n\
         WITH ORDINALITY AS done (id, fence, outcome, place) JOIN @schema@.records AS kept\n\
         ON kept.id = done.id AND kept.fence = done.fence",
    ),
    mutant("sql/complete_batch.sql", "kept.fence = done.fence AND ", ""),
    mutant("sql/complete_batch.sql", " AND kept.state IN ('in_progress', 'unknown')", ""),
    mutant("sql/complete_batch.sql", "outcome = done.outcome", "outcome = ($4::bytea[])[1]"),
    mutant(
        "sql/complete_batch.sql",
        "CASE WHEN kept.waited THEN @schema@.wake_1(kept.id) END",
        "NULL",
    ),
    mutant(
        "sql/complete_batch.sql",
        "due = coalesce($1, @schema@.arrived_1()) + retention",
        "due = due",
    )
    .by("at_once"),
    mutant("sql/complete_batch.sql", "notes_dropped + @schema@.crowded_1(notes)", "notes_dropped")
        .by("at_once"),
    mutant(
        "sql/begin_batch.sql",
        "    INSERT INTO ⋯RETURNING id, fence\n",
        "SELECT id, nextval('@schema@.fences') AS fence FROM asked WHERE NOT EXISTS (\n\
         SELECT FROM @schema@.records AS kept WHERE kept.id = asked.id)\n",
    ),
    mutant("sql/begin_batch.sql", "$11 <> 'rerun', ", "true, ").by("reopened"),
    mutant(
        "sql/begin_batch.sql",
        "current_setting('justonce.no_crash_in', true) = @channel@\n            AND ",
        "",
    )
    .by("production::"),
    mutant("sql/begin_batch.sql", " WHERE $11 = 'rerun')", ")").by("production::"),
    mutant("sql/begin_batch.sql", "$11::text = 'hold' OR ", ""),
    mutant("sql/begin_batch.sql", "    ON CONFLICT (id) DO NOTHING\n", ""),
    mutant(
        "sql/begin_batch.sql",
        "THEN current_setting('justonce.held', true) END",
        "THEN NULL::text END",
    ),
    mutant("sql/begin_batch.sql", "fresh.at + $9, $9,", "fresh.at + $9 * 2, $9,"),
    mutant(
        "sql/begin.sql",
        "current_setting('justonce.no_crash_in', true) = @channel@\n            AND ",
        "",
    )
    .by("production::"),
    mutant(
        "sql/begin.sql",
        "\n            AND coalesce($9::bigint > coalesce($1, @schema@.arrived_1()), true)",
        "",
    ),
    mutant("sql/begin.sql", "AND NOT EXISTS (SELECT FROM @schema@.records WHERE id = $2)", ""),
    mutant("sql/begin.sql", " AND $12 = 'rerun'\n", "\n").by("production::"),
    mutant("sql/begin.sql", "$12::text = 'hold' OR ", ""),
    mutant("sql/begin.sql", "fresh.at + $10, $10,", "fresh.at + $10 * 2, $10,"),
    mutant("sql/begin.sql", "    ON CONFLICT (id) DO NOTHING\n", ""),
    mutant(
        "sql/begin.sql",
        "THEN current_setting('justonce.held', true) END",
        "THEN NULL::text END",
    ),
    mutant("sql/begin_read_only.sql", "$3, true, ", "$3, false, ").by("faults::"),
    mutant("sql/begin_read_only.sql", "$1, $2, $3", "$1, $2 || '\\x00'::bytea, $3").by("faults::"),
    mutant("sql/checkpoint.sql", "'checkpoint'", "'renew'").by("transactional::"),
    mutant("sql/checkpoint_within.sql", "'checkpoint', $3", "'checkpoint', $3 - 1")
        .by("transactional::"),
    mutant("sql/checkpoint_within.sql", "'5s'", "'0'").by("transactional::"),
    mutant("sql/commit_status.sql", " FOR SHARE", "").by("transactional::"),
    mutant("sql/commit_status.sql", "point_number FROM", "point_number + 1 FROM")
        .by("transactional::"),
    mutant(
        "sql/complete.sql",
        "UPDATE ⋯RETURNING CASE ⋯ IS NULL",
        "SELECT $1::bigint IS NULL, $4::bytea FROM @schema@.records WHERE id = $2 AND fence = $3",
    ),
    mutant("sql/complete.sql", "AND fence = $3", "AND fence >= $3"),
    mutant("sql/complete.sql", " AND state IN ('in_progress', 'unknown')", ""),
    mutant("sql/complete.sql", "CASE WHEN waited THEN @schema@.wake_1(id) END", "NULL"),
    mutant("sql/complete.sql", "notes_dropped + @schema@.crowded_1(notes)", "notes_dropped"),
    mutant("sql/complete.sql", "fence, 'completed')", "fence, 'claimed')"),
    mutant("sql/complete_by_rules.sql", "$3, $4", "-$3,$4"),
    mutant("sql/complete_within.sql", "$3, $4", "$3 - 1, $4").by("transactional::"),
    mutant("sql/complete_within.sql", "'5s'", "'0'").by("transactional::"),
    mutant("sql/expire_or_erase.sql", "$1, $2, $3, $4)\n", "$1,$2,$3,NOT $4)"),
    mutant("sql/forget_messages.sql", "$1, $2)\n", "$1,$2/9)").by("transactional::"),
    mutant("sql/get.sql", "id = $1", "id > $1"),
    mutant("sql/list_one.sql", "id = $1", "id >= $1"),
    mutant("sql/list.sql", "id > $1", "id >= $1"),
    mutant("sql/list.sql", "changed_at >= $4::bigint", "changed_at > $4::bigint"),
    mutant("sql/list.sql", "NOT IN ('in_progress', 'unknown')", "= 'tombstone'"),
    mutant("sql/list.sql", "    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)\n", ""),
    mutant("sql/list_columns.sql", "outcome = @empty@ AS is_empty", "false AS is_empty"),
    mutant("sql/list_failed.sql", "IN ('failed', 'waiting')", "= 'failed'"),
    mutant("sql/list_failed.sql", "id > $1", "id >= $1"),
    mutant("sql/list_in_progress.sql", "due + 0 > coalesce", "due + 0 <> coalesce"),
    mutant("sql/list_in_progress.sql", "AND due IS NULL", "AND false"),
    mutant(
        "sql/list_page.sql",
        "    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)\n",
        "",
    ),
    mutant("sql/list_page.sql", "changed_at >= $4::bigint", "changed_at > $4::bigint"),
    mutant("sql/list_unknown.sql", "due + 0 <= coalesce", "due + 0 < coalesce"),
    mutant("sql/list_unknown.sql", "AND state = 'unknown'", "AND false"),
    mutant("sql/peek.sql", "$3, false, ", "$3, true, "),
    mutant("sql/ready.sql", "pg_is_in_recovery() OR ", "").by("faults::"),
    mutant("sql/ready.sql", " OR current_setting('transaction_read_only') = 'on'", "")
        .by("faults::"),
    mutant("sql/ready.sql", "to_regclass('@schema@.records') IS NOT NULL", "true")
        .by("migrations::"),
    mutant("sql/remember_message.sql", "$3, $4)::text\n", "$3,$4/9)::text").by("transactional::"),
    mutant("sql/session.sql", "SET default_transaction_isolation = 'read committed';\n", "")
        .by("connections::"),
    mutant("sql/session.sql", "SET default_transaction_deferrable = off;\n", "")
        .by("connections::"),
    mutant("sql/session.sql", "SELECT set_config('synchronous_commit', 'on', false)⋯'off';\n", "")
        .by("connections::"),
    mutant("sql/session.sql", "SET tcp_keepalives_idle = 10;\n", "")
        .by("connections::")
        .survives("a client that vanishes without a word cannot be made on one machine"),
    mutant("sql/session_cleaned.sql", "CLOSE ALL;\n", "").by("transactional::"),
    mutant("sql/session_cleaned.sql", "SET SESSION AUTHORIZATION DEFAULT;\n", "")
        .by("transactional::"),
    mutant("sql/session_cleaned.sql", "RESET ALL;\n", "").by("transactional::"),
    mutant("sql/session_cleaned.sql", "UNLISTEN *;\n", "").by("transactional::"),
    mutant("sql/session_cleaned.sql", "SELECT pg_advisory_unlock_all();\n", "")
        .by("transactional::"),
    mutant("sql/session_cleaned.sql", "DISCARD TEMP;\n", "").by("transactional::"),
    mutant("sql/session_cleaned.sql", "DISCARD SEQUENCES;\n", "").by("transactional::"),
    mutant("sql/session_long_locks.sql", "SET lock_timeout = '2s';", "").by("locked::"),
    mutant("sql/session_short_locks.sql", "SET lock_timeout = '100ms';", "").by("locked::"),
    mutant("sql/session_reads.sql", "SET plan_cache_mode = force_custom_plan;", "").by("plans::"),
    mutant("sql/session_steps.sql", "SET enable_seqscan = off;\n", "").by("plans::"),
    mutant("sql/session_steps.sql", "SET enable_bitmapscan = off;\n", "").by("plans::"),
    mutant("sql/session_steps.sql", "SET plan_cache_mode = force_generic_plan;", "").by("plans::"),
    mutant("sql/size.sql", "state = 'unknown' LIMIT", "state = 'failed' LIMIT").by("growth::"),
    mutant("sql/size.sql", "due IS NOT NULL\n", "due IS NULL\n").by("growth::"),
    mutant("sql/size.sql", "FILTER (WHERE NOT is_released)", "").by("growth::"),
    mutant("sql/stats.sql", "retry_at = changed_at AND ", ""),
    mutant("sql/stats.sql", "outcome = @empty@ THEN 'released'", "outcome = @empty@ THEN 'failed'"),
    mutant("sql/sweep.sql", "current_setting('justonce.held', true)", "NULL::text"),
    mutant("sql/sweep.sql", "$1, $2, $3, $4, $5", "$1,$2,$3*9,$4,$5"),
    mutant("sql/terminate_backend.sql", "pid = $1", "pid = $1 + 1").by("transactional::"),
    mutant("sql/watch.sql", "$2, $3", "$2,-$3"),
    mutant("sql/write.sql", "current_setting('justonce.held', true)", "NULL::text"),
];
