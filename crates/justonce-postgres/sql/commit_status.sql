-- The state of a claim, and its last checkpoint. The lock waits for a transaction that is about to
-- change it.
SELECT state, fence, point_number FROM @schema@.records WHERE id = $1 FOR SHARE
