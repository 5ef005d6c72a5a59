SELECT @schema@.wait_1($1, $2, $3)
