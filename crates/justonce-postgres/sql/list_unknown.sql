-- As `list.sql`, of unknown records: by `records_unknown`, and by `records_claims_due` of lapsed
-- claims that no sweep has changed yet.
-- Never by `records_due`, which has all records that end, whatever the server's statistics say.
WITH looked_at AS MATERIALIZED (
    SELECT * FROM (
        (SELECT @columns@ FROM @schema@.records
         WHERE id > $1 AND state = 'unknown'
         ORDER BY id LIMIT $3::bigint)
        UNION ALL
        (SELECT @columns@ FROM @schema@.records
         WHERE id > $1 AND state = 'in_progress' AND due IS NOT NULL
             AND due + 0 <= coalesce($2, @schema@.arrived_1())
         ORDER BY id LIMIT $3)
    ) AS either ORDER BY id LIMIT $3
)
@page@
