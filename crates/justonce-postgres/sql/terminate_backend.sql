-- Ends a transaction of the store whose client is gone, if it is still open.
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE pid = $1 AND backend_xid = $2::text::xid
