-- begin_batch: several begins, by the fast paths of begin. The others are not touched: they are sent
-- alone.
--
-- KEYS  the records, the last fence, and the index of each
-- ARGV  numbers for the fast path, the record from the number of its checkpoint to its
--       subject, of each; then '1' if a record may come twice
-- gives {moment, first fence, a letter for each, the records that are there}; the letters: c if it
--       is claimed, with the next fence, r if its record is there, a if it must be sent alone; no letters
--       if all are claimed
local time, letters = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
local count, filled = (#KEYS - 1) / 2, 0
local claimed = #ARGV > 2 * count and {}
local raws = redis.call('MGET', unpack(KEYS, 1, count + 1))
local fence = next_fence(raws[count + 1], micros)
local given = { now, fence, '' }
for at = 1, count do
  local record, raw, letter = KEYS[at], raws[at], 'a'
  if raw then
    if #raw >= 77 and is_kept(raw, now) then
      letter, given[#given + 1] = 'r', raw
    end
  elseif not (claimed and claimed[record]) then
    local kept =
      claim_new(record, KEYS[count + 1 + at], fence, now, ARGV[2 * at - 1], ARGV[2 * at], '')
    if claimed then
      claimed[record] = true
    end
    if kept then
      -- The arguments read so far are replaced by the writes.
      letter, ARGV[filled + 1], ARGV[filled + 2] = 'c', record, kept
      fence, filled = fence + 1, filled + 2
    end
  end
  if letter ~= 'c' then
    letters = letters or {}
    letters[at] = letter
  end
end
if filled > 0 then
  ARGV[filled + 1], ARGV[filled + 2] = KEYS[count + 1], string.format('%d', fence - 1)
  redis.call('MSET', unpack(ARGV, 1, filled + 2))
end
if letters then
  given[3] = all_letters(letters, count, 'c')
end
return given
