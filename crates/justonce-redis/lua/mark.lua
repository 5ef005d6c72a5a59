-- mark: a write that leaves nothing, so that WAIT on this connection covers all writes before it.
--
-- KEYS  mark
redis.call('SET', KEYS[1], '')
redis.call('DEL', KEYS[1])
return 1
