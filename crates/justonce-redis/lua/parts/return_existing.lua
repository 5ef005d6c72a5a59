-- The first fast path of begin: a record that no begin can change now is returned as it is, and
-- the caller decides. Nothing is written.
local raw, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
-- Only tests pass a moment.
local now = ARGV[5] and tonumber(ARGV[5]) or (micros - micros % 1000) / 1000
if raw then
  if #raw < 77 then
    return 'damaged'
  end
  if is_kept(raw, now) then
    if string.byte(raw, 3) == 80 and ARGV[4] == '1' then
      -- WAIT covers only what this connection wrote, and this may be a repeated begin.
      redis.call('SETRANGE', KEYS[1], 0, 'J')
    end
    return { now, raw }
  end
end
