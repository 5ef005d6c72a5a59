-- Several begins of different records with one policy. As `begin.sql`, in the order of ids: batches
-- that lock records in one order cannot deadlock.
--
-- Under `rerun` only first claims are written, since a crash may lose only those: other records that
-- could be claimed are not touched.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::bytea[])
        WITH ORDINALITY AS asked (id, fingerprint, scope, key, token, place)
), claimed AS (
    INSERT INTO @schema@.records (
        id, state, fence, attempt, changed_at, due, created_at, scope, key, fingerprint,
        owner, token, claimed_at, lease_until, lease, lease_cap, on_lapsed, on_failure,
        back_off_first, back_off_max, max_attempts, retention, refuse, notes)
    SELECT fresh.id, 'in_progress', fresh.fence, 1, fresh.at,
           CASE WHEN $11::text = 'hold' OR 1 >= $15::bigint THEN fresh.at + $9::bigint END,
           fresh.at, fresh.scope, fresh.key, fresh.fingerprint,
           $7::text, fresh.token, fresh.at, fresh.at + $9, $9, $10::bigint, $11, $12::text,
           $13::bigint, $14::bigint, $15, $16::bigint, $17::bigint,
           ARRAY[fresh.at::text || ' ' || fresh.fence::text || ' claimed ' || $8::text]
    FROM (
        SELECT asked.*, nextval('@schema@.fences') AS fence,
               coalesce($1, @schema@.arrived_1()) AS at
        FROM asked
        WHERE current_setting('justonce.no_crash_in', true) = @channel@
            AND (SELECT kept.fence FROM @schema@.records AS kept WHERE kept.id = asked.id) IS NULL
        OFFSET 0
    ) AS fresh
    ON CONFLICT (id) DO NOTHING
    RETURNING id, fence
)
SELECT asked.place, claimed.fence,
       CASE WHEN claimed.fence IS NULL THEN @schema@.begin_3(
           $1, asked.id, asked.fingerprint, $11 <> 'rerun', asked.scope, asked.key, $7, $8,
           asked.token, NULL, $9, $10, $11, $12, $13, $14, $15, $16, $17, NULL, NULL, false)
           END AS begun,
       (SELECT set_config('synchronous_commit', 'off', true) WHERE $11 = 'rerun'),
       -- The operations that these begins made unknown, up to this one.
       CASE WHEN claimed.fence IS NULL THEN current_setting('justonce.held', true) END
FROM asked LEFT JOIN claimed ON claimed.id = asked.id
