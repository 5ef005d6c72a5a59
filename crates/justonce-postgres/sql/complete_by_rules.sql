SELECT @schema@.complete_1($1, $2, $3, $4)
