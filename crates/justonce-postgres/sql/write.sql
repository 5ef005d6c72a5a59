SELECT *, current_setting('justonce.held', true) AS o_held FROM @schema@.write_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
