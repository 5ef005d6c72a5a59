-- As `list.sql`, of what is in progress: by `records_claims_free`, and by `records_claims_due` of
-- claims that have not lapsed.
-- By no means by `records_due`, however few the server believes to be there: it has all that end.
WITH looked_at AS MATERIALIZED (
    SELECT * FROM (
        (SELECT @columns@ FROM @schema@.records
         WHERE id > $1 AND state = 'in_progress' AND due IS NULL
         ORDER BY id LIMIT $3::bigint)
        UNION ALL
        (SELECT @columns@ FROM @schema@.records
         WHERE id > $1 AND state = 'in_progress' AND due IS NOT NULL
             AND due + 0 > coalesce($2, @schema@.arrived_1())
         ORDER BY id LIMIT $3)
    ) AS either ORDER BY id LIMIT $3
)
SELECT looked_at.*, coalesce($2, @schema@.arrived_1()) AS listed_at,
       (SELECT count(*) FROM looked_at) AS looked_at
FROM looked_at
WHERE (coalesce($2, @schema@.arrived_1()) - changed_at >= $4::bigint) IS NOT FALSE
    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)
ORDER BY id
