-- As `list.sql`, of failed records: by `records_failed`.
WITH looked_at AS MATERIALIZED (
    SELECT @columns@ FROM @schema@.records
    WHERE id > $1 AND state IN ('failed', 'waiting') ORDER BY id LIMIT $3::bigint
)
@page@
