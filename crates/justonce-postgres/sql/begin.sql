-- A begin. Most operations are new: then this is one INSERT with a new fence. The function handles
-- all other cases. A duplicate ends at NOT EXISTS: it takes no fence and writes nothing.
WITH claimed AS (
    INSERT INTO @schema@.records (
        id, state, fence, attempt, changed_at, due, created_at, scope, key, fingerprint,
        owner, token, claimed_at, lease_until, lease, lease_cap, on_lapsed, on_failure,
        back_off_first, back_off_max, max_attempts, retention, refuse,
        point_name, point_data, point_number, notes)
    SELECT $2::bytea, 'in_progress', fresh.fence, 1, fresh.at,
           CASE WHEN $12::text = 'hold' OR 1 >= $16::bigint THEN fresh.at + $10::bigint END,
           fresh.at, $4::text, $5::text, $3::bytea,
           $6::text, $8::bytea, fresh.at, fresh.at + $10, $10, $11::bigint, $12, $13::text,
           $14::bigint, $15::bigint, $16, $17::bigint, $18::bigint,
           $19::bytea, $20::bytea, CASE WHEN $19 IS NOT NULL THEN 0 END,
           ARRAY[fresh.at::text || ' ' || fresh.fence::text || ' claimed ' || $7::text]
    FROM (
        SELECT nextval('@schema@.fences') AS fence, coalesce($1, @schema@.arrived_1()) AS at
        -- Each connection checks once whether a crash has lost fences.
        WHERE current_setting('justonce.no_crash_in', true) = @channel@
            AND NOT EXISTS (SELECT FROM @schema@.records WHERE id = $2)
            AND coalesce($9::bigint > coalesce($1, @schema@.arrived_1()), true)
        OFFSET 0
    ) AS fresh
    ON CONFLICT (id) DO NOTHING
    RETURNING fence
)
SELECT fence,
       CASE WHEN fence IS NULL THEN @schema@.begin_3(
           $1, $2, $3, true, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
           $19, $20, $21::boolean) END AS begun,
       -- Under `rerun` a crash may lose a first claim.
       CASE WHEN fence IS NOT NULL AND $12 = 'rerun'
           THEN set_config('synchronous_commit', 'off', true) END,
       -- Whether this begin made the operation unknown.
       CASE WHEN fence IS NULL THEN current_setting('justonce.held', true) END
FROM (SELECT (SELECT fence FROM claimed) AS fence OFFSET 0) AS mine
