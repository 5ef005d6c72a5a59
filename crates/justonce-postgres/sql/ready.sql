SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
       to_regclass('@schema@.records') IS NOT NULL
