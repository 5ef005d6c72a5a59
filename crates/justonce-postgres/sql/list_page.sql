-- The rows that may be requested, and the last row, which the next page begins behind.
SELECT looked_at.*, coalesce($2, @schema@.arrived_1()) AS listed_at,
       (SELECT count(*) FROM looked_at) AS looked_at
FROM looked_at
WHERE (coalesce($2, @schema@.arrived_1()) - changed_at >= $4::bigint) IS NOT FALSE
    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)
ORDER BY id
