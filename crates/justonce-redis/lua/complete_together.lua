-- complete_together: several completions, as far as they go by the fast path of complete. What does
-- not is left alone and goes alone.
--
-- KEYS  record, index of each
-- ARGV  fence and outcome in one, of each
-- gives a letter for each: d if it is done, a if it must go alone
local time, records, letters, seen, ends = redis.call('TIME'), {}, {}, {}, {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count, filled = #KEYS / 2, 0
for at = 1, count do
  records[at] = KEYS[2 * at - 1]
end
local raws = redis.call('MGET', unpack(records))
for at = 1, count do
  local record = records[at]
  local raw = not seen[record] and raws[at]
  seen[record] = true
  local kept = raw and done(record, KEYS[2 * at], raw, now, ARGV[at])
  letters[at] = 'a'
  if kept then
    letters[at], ends[filled + 1], ends[filled + 2] = 'd', record, kept
    filled = filled + 2
  end
end
if filled > 0 then
  redis.call('MSET', unpack(ends))
end
return table.concat(letters)
