-- A page looks at a bounded number of records. Of those, only what may be asked for is sent, and
-- the last one, so that the next page knows where to begin. Outcomes and checkpoints stay here.
WITH looked_at AS MATERIALIZED (
    SELECT id, state, fence, attempt, changed_at, created_at, scope, key, fingerprint,
           owner, token, claimed_at, lease_until,
           lease, lease_cap, on_lapsed, on_failure, back_off_first, back_off_max, max_attempts,
           retention, refuse, retry_at, expires_at, reason,
           -- Whether it has nothing to say, as what was released.
           outcome = $5 AS is_empty
    FROM @schema@.records
    -- What is unknown has an index of its own; a lapsed claim may have become it.
    WHERE id > $1 AND ($2 <> 'unknown' OR state = 'unknown'
        OR (state = 'in_progress' AND due <= coalesce($3, @schema@.millis_1())))
    ORDER BY id LIMIT $4
)
SELECT looked_at.*, coalesce($3, @schema@.millis_1()) AS listed_at,
       (SELECT count(*) FROM looked_at) AS looked_at
FROM looked_at
WHERE CASE $2
        WHEN '' THEN true
        WHEN 'failed' THEN state IN ('failed', 'waiting')
        WHEN 'released' THEN state = 'waiting'
        WHEN 'unknown' THEN true
        WHEN 'tombstone' THEN state NOT IN ('in_progress', 'unknown')
        ELSE state = $2 END
    OR id = (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1)
ORDER BY id
