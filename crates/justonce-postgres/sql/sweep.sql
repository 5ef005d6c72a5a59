SELECT *, current_setting('justonce.held', true) AS o_unknown
FROM @schema@.sweep_2($1, $2, $3, $4, $5)
