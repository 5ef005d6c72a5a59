-- The size of the table, and the number of records that may need an operator: each by its own index,
-- and up to $1.
SELECT pg_relation_size('@schema@.records') AS bytes,
       (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'unknown' LIMIT $1) AS counted) AS unknown,
       (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'in_progress' AND due IS NOT NULL
            LIMIT $1) AS counted)
       + (SELECT count(*) FROM (
            SELECT FROM @schema@.records WHERE state = 'in_progress' AND due IS NULL
            LIMIT $1) AS counted) AS in_progress,
       ended.failed, ended.released
FROM (
    SELECT count(*) FILTER (WHERE NOT is_released) AS failed,
           count(*) FILTER (WHERE is_released) AS released
    FROM (
        SELECT (state = 'waiting' AND retry_at = changed_at AND outcome = @empty@) IS TRUE
            AS is_released
        FROM @schema@.records WHERE state IN ('failed', 'waiting') LIMIT $1
    ) AS counted
) AS ended
