-- complete_batch: several completions, by the fast path of complete. The others are not touched:
-- they are sent alone.
--
-- KEYS  record, index of each
-- ARGV  fence and outcome in one, of each; then '1' if a record may come twice
-- gives a letter for each: d if it is done, a if it must be sent alone; no letters if all are done
local time, records, letters = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count, filled = #KEYS / 2, 0
local seen = #ARGV > count and {}
for at = 1, count do
  records[at] = KEYS[2 * at - 1]
end
local raws = redis.call('MGET', unpack(records))
for at = 1, count do
  local record, raw = records[at], raws[at]
  if seen then
    raw, seen[record] = not seen[record] and raw, true
  end
  local kept = raw and fast_complete(record, KEYS[2 * at], raw, now, ARGV[at])
  if kept then
    -- The keys read so far are replaced by the writes.
    KEYS[filled + 1], KEYS[filled + 2] = record, kept
    filled = filled + 2
  else
    letters = letters or {}
    letters[at] = 'a'
  end
end
if filled > 0 then
  redis.call('MSET', unpack(KEYS, 1, filled))
end
return letters and all_letters(letters, count, 'd') or ''
