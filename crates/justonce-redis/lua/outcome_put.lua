-- Keeps an outcome, unless it comes too late: its time is over, or its record was forgotten since
-- the look that gave the right to put it.
--
-- KEYS[1] is the outcome, KEYS[2] the moment at which it was last forgotten. ARGV[2] is the moment
-- of the look, ARGV[3] the moment at which the time is over, ARGV[4] the outcome.
local look, till = tonumber(ARGV[2]), tonumber(ARGV[3])
local forgotten = tonumber(redis.call('GET', KEYS[2]) or '')
if now >= till or (forgotten and forgotten >= look) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[4], 'PX', till - now)
return 1
