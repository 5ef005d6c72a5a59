-- The server's time in milliseconds. Only tests pass a moment: as ARGV[1] here, as the last argument
-- of begin and complete, which start with their fast paths.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
