SELECT * FROM @schema@.sweep_1($1, $2, $3)
