SELECT pg_relation_size('@schema@.records') AS bytes,
       (SELECT count(*) FROM @schema@.records WHERE state = 'unknown') AS unknown
