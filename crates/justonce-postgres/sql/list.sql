-- $1: the record before the page. $2: now, in tests. $3: the number of records read. $4: the time
-- since their last change. $5: their state, or ''.
--
-- A page reads a bounded number of records, by the primary key. Of those, the ones that may be
-- requested are sent, and the last one, which the next page begins behind; without outcomes and
-- checkpoints.
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
