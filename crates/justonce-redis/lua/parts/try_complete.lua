local raw, time = redis.call('GET', KEYS[1]), redis.call('TIME')
-- Only tests pass a moment.
local now = ARGV[3] and tonumber(ARGV[3]) or time[1] * 1000 + math.floor(time[2] / 1000)
local kept = raw and fast_complete(KEYS[1], KEYS[2], raw, now, ARGV[1])
if kept then
  redis.call('SET', KEYS[1], kept)
  return 'applied'
end
ARGV[3], ARGV[4] = string.sub(ARGV[1], 1, 8), string.sub(ARGV[1], 9)
