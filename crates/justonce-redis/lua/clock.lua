-- The store's time in whole milliseconds: the server's. Only tests hand in a moment of their own.
-- Every script has it as ARGV[1], empty in use, and begins with this file.
local now, micros = tonumber(ARGV[1]), nil
if not now then
  local time = redis.call('TIME')
  micros = time[1] * 1000000 + time[2]
  now = math.floor(micros / 1000)
end
