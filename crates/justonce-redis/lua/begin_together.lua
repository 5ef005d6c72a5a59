-- begin_together: several begins, as far as they go by the fast paths of begin. What does not is left
-- alone and goes alone.
--
-- KEYS  record, index of each
-- ARGV  what the fast path reckons with, the record from the number of its checkpoint to the words
--       of its first note, of each
-- gives {moment, for each: fence | record | 0 if it must go alone}
local time, records, given, claimed, claims = redis.call('TIME'), {}, {}, {}, {}
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
for at = 1, #KEYS, 2 do
  records[#records + 1] = KEYS[at]
end
local raws = redis.call('MGET', unpack(records))
given[1] = now
for at, record in ipairs(records) do
  local raw, reply = raws[at], 0
  if raw then
    if #raw >= 77 and is_kept(raw, now) then
      reply = raw
    end
  elseif not claimed[record] then
    claimed[record] = true
    -- Each has a microsecond of its own.
    local fence, kept =
      claim_new(record, KEYS[2 * at], micros + at, now, ARGV[2 * at - 1], ARGV[2 * at], '')
    if fence then
      reply, claims[#claims + 1], claims[#claims + 2] = fence, record, kept
    end
  end
  given[at + 1] = reply
end
if #claims > 0 then
  redis.call('MSET', unpack(claims))
end
return given
