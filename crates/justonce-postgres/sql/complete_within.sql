-- Complete inside the caller's transaction, and how to find that transaction again. Then
-- only the commit is missing: a client that does not send it within the timeout is gone.
SELECT @schema@.complete_1($1, $2, $3, $4), pg_backend_pid(), pg_current_xact_id()::xid::text,
       set_config('idle_in_transaction_session_timeout', '5s', true)
