-- Reads an outcome, and the time of the read.
--
-- KEYS[1] is the outcome. Nothing is written.
return { now, redis.call('GET', KEYS[1]) }
