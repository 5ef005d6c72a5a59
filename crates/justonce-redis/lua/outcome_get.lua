-- Looks for an outcome, and tells the time at which it looked.
--
-- KEYS[1] is the outcome. Nothing is written.
return { now, redis.call('GET', KEYS[1]) }
