SELECT * FROM @schema@.sweep_2($1, $2, $3, $4, $5)
