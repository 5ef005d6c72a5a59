-- A begin without the INSERT of `begin.sql`: a read-only server still answers duplicates.
SELECT NULL::bigint, @schema@.begin_3(
    $1, $2, $3, true, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21), NULL, NULL::text
