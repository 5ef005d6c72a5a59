SELECT @schema@.processed_1($1, $2, $3, $4)::text
