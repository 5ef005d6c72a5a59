-- $1: the part of the table that is counted, in percent.
SELECT CASE WHEN state <> 'waiting' THEN state
            WHEN retry_at = changed_at AND outcome = @empty@ THEN 'released'
            ELSE 'failed' END AS state,
       count(*) AS count,
       sum(pg_column_size(notes) + coalesce(octet_length(outcome), 0)
           + coalesce(octet_length(point_data), 0) + coalesce(octet_length(scope), 0)
           + coalesce(octet_length(key), 0)
           -- The hash of the record, and a number, moment or flag in each other column.
           + octet_length(id) + 8 * 20)::bigint AS bytes
FROM @schema@.records TABLESAMPLE SYSTEM ($1)
GROUP BY 1
