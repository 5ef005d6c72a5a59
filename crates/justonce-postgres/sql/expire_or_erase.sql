SELECT @schema@.give_up_1($1, $2, $3, $4)
