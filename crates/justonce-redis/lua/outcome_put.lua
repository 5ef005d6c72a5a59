-- Keeps an outcome, unless its time is over or it was removed since the read before.
--
-- KEYS[1] is the outcome, KEYS[2] the moment of its last removal. ARGV[2] is the moment of the read,
-- ARGV[3] the moment when the time is over, ARGV[4] the outcome.
local look, till = tonumber(ARGV[2]), tonumber(ARGV[3])
local forgotten = tonumber(redis.call('GET', KEYS[2]) or '')
if now >= till or (forgotten and forgotten >= look) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[4], 'PX', till - now)
return 1
