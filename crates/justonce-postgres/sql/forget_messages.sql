SELECT @schema@.forget_1($1, $2)
