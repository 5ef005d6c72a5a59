SELECT o_answer FROM @schema@.write_1(
    $1, $2, 'checkpoint', $3, NULL, NULL, NULL, NULL, $4, $5, $6, $7, NULL, NULL, NULL)
