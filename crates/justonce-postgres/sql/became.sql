-- What became of a claim. The lock waits for a transaction that is about to say it.
SELECT state, fence FROM @schema@.records WHERE id = $1 FOR SHARE
