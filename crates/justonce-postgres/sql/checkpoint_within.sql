-- A checkpoint inside the caller's transaction, and what is needed to find out what became of it. From
-- here on the record is locked, and only the commit is left to be said: a client that does not
-- say it for so long is gone, though the server may not have noticed.
SELECT o_answer, pg_backend_pid(), pg_current_xact_id()::xid::text,
       set_config('idle_in_transaction_session_timeout', '5s', true)
FROM @schema@.write_1(
    $1, $2, 'checkpoint', $3, NULL, NULL, NULL, NULL, $4, $5, $6, $7, NULL, NULL, NULL)
