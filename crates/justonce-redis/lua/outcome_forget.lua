-- Forgets an outcome, and leaves a mark against those who are about to put it.
--
-- KEYS[1] is the outcome, KEYS[2] the moment at which it was last forgotten. ARGV[2] is how long
-- the mark must stay: as long as an outcome may be kept, for what is put later is over by then.
redis.call('SET', KEYS[2], now, 'PX', ARGV[2])
return redis.call('DEL', KEYS[1])
