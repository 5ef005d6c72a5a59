-- complete_together: several completions, as far as they go by the fast path of complete. What does
-- not is left alone and goes alone.
--
-- KEYS  record, index of each
-- ARGV  fence and outcome in one, of each
-- gives for each: 1 if it is done | 0 if it must go alone
local time, records, given, seen, ends = redis.call('TIME'), {}, {}, {}, {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 1, #KEYS, 2 do
  records[#records + 1] = KEYS[at]
end
local raws = redis.call('MGET', unpack(records))
for at, record in ipairs(records) do
  local raw = not seen[record] and raws[at]
  seen[record] = true
  local kept = raw and done(record, KEYS[2 * at], raw, now, ARGV[at])
  given[at] = 0
  if kept then
    given[at], ends[#ends + 1], ends[#ends + 2] = 1, record, kept
  end
end
if #ends > 0 then
  redis.call('MSET', unpack(ends))
end
return given
