-- peek: gives the record and the time. The caller decides.
--
-- KEYS  record
-- ARGV  moment
local raw = redis.call('GET', KEYS[1])
return { now, raw }
