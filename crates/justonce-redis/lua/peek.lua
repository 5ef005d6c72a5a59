-- peek: hands back the record as it is, with the moment; the caller reads the answer from it.
--
-- KEYS  record
-- ARGV  moment
local raw = redis.call('GET', KEYS[1])
return { now, raw }
