-- The store's time in whole milliseconds: the server's. Only tests hand in a moment of their own.
-- Most scripts have it as ARGV[1], empty in use, and begin with this file. begin and complete have
-- it last, and begin with their fast paths.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
