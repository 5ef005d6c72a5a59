-- What each connection needs, whatever the server's settings are.
SET default_transaction_isolation = 'read committed';
SET default_transaction_deferrable = off;
-- An acknowledged write is on disk, or wherever else the server's own setting wants it.
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
-- A vanished client is noticed in half a minute, and its locks are freed.
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
