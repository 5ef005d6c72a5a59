-- How large the table is, and how many records there are of those that somebody may have to look
-- after: each by its own index, and up to $1.
SELECT pg_relation_size('@schema@.records') AS bytes,
       (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'unknown' LIMIT $1) AS counted) AS unknown,
       (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'in_progress' AND due IS NOT NULL
            LIMIT $1) AS counted)
       + (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'in_progress' AND due IS NULL
            LIMIT $1) AS counted) AS in_progress,
       (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state IN ('failed', 'waiting')
            LIMIT $1) AS counted) AS failed
