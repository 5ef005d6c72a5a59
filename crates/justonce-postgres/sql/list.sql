-- $1: the record before the page. $2: now, in tests. $3: how many are looked at. $4: for how long
-- they have not changed. $5: their state, or nothing.
--
-- A page looks at a bounded number of records, by the primary key. Of those, only what may be asked
-- for is sent, and the last one, so that the next page knows where to begin. Outcomes and checkpoints
-- stay here.
WITH looked_at AS MATERIALIZED (
    SELECT @columns@ FROM @schema@.records WHERE id > $1 ORDER BY id LIMIT $3::bigint
)
SELECT looked_at.*, coalesce($2, @schema@.arrived_1()) AS listed_at,
       (SELECT count(*) FROM looked_at) AS looked_at
FROM looked_at
WHERE (coalesce($2, @schema@.arrived_1()) - changed_at >= $4::bigint) IS NOT FALSE
    AND CASE $5::text
        WHEN '' THEN true
        WHEN 'tombstone' THEN state NOT IN ('in_progress', 'unknown')
        ELSE state = $5 END
    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)
ORDER BY id
