-- As `list.sql`, of one record: $1 is its name.
WITH looked_at AS MATERIALIZED (
    SELECT @columns@ FROM @schema@.records WHERE id = $1 LIMIT $3::bigint
)
@page@
