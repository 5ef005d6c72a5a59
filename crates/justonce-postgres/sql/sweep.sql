SELECT *, current_setting('justonce.held', true) AS o_unknown FROM @schema@.sweep_1($1, $2, $3)
