-- begin_together: several begins, as far as they go by the fast paths of begin. What does not is left
-- alone and goes alone.
--
-- KEYS  record, index of each, and the last fence
-- ARGV  what the fast path reckons with, the record from the number of its checkpoint to its
--       subject, of each
-- gives {moment, first fence, a letter for each, the records that are there}; the letters: c if it
--       is claimed, with the next fence, r if its record is there, a if it must go alone
local time, read, letters, claimed, claims = redis.call('TIME'), {}, {}, {}, {}
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
local count, filled = (#KEYS - 1) / 2, 0
for at = 1, count do
  read[at] = KEYS[2 * at - 1]
end
read[count + 1] = KEYS[#KEYS]
local raws = redis.call('MGET', unpack(read))
local fence = next_fence(raws[count + 1], micros)
local given = { now, fence, '' }
for at = 1, count do
  local record, raw, letter = read[at], raws[at], 'a'
  if raw then
    if #raw >= 77 and is_kept(raw, now) then
      letter, given[#given + 1] = 'r', raw
    end
  elseif not claimed[record] then
    claimed[record] = true
    local kept =
      claim_new(record, KEYS[2 * at], fence, now, ARGV[2 * at - 1], ARGV[2 * at], '')
    if kept then
      letter, claims[filled + 1], claims[filled + 2] = 'c', record, kept
      fence, filled = fence + 1, filled + 2
    end
  end
  letters[at] = letter
end
if filled > 0 then
  claims[filled + 1], claims[filled + 2] = KEYS[#KEYS], string.format('%d', fence - 1)
  redis.call('MSET', unpack(claims))
end
given[3] = table.concat(letters)
return given
