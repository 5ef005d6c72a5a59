-- Removes an outcome, and leaves a mark that refuses concurrent puts.
--
-- KEYS[1] is the outcome, KEYS[2] the mark. ARGV[2] is how long the mark stays: as long as an
-- outcome may be kept, since later puts are refused by their own time limit.
redis.call('SET', KEYS[2], now, 'PX', ARGV[2])
return redis.call('DEL', KEYS[1])
