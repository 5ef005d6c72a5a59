-- watch: marks a running claim as having waiters, so that its end is published.
--
-- KEYS  record
-- ARGV  moment, fence
-- gives 1 if the claim runs, 0 if it has ended
local head = redis.call('GETRANGE', KEYS[1], 0, 76)
if #head < 77 or string.sub(head, 3, 3) ~= 'P' or string.sub(head, 9, 16) ~= ARGV[2] then
  return 0
elseif now >= struct.unpack('>I8', head, 37) then
  return 0
end
if string.byte(head, 4) == 0 then
  redis.call('SETRANGE', KEYS[1], 3, string.char(1))
end
return 1
