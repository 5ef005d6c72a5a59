-- complete_together: several completions, as far as they go the fast path of complete. What does not
-- is left alone and goes alone.
--
-- KEYS  record, index of each
-- ARGV  fence and outcome in one, of each
-- gives for each: 1 if it is done | 0 if it must go alone
local time, records, given, done = redis.call('TIME'), {}, {}, {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 1, #KEYS, 2 do
  records[#records + 1] = KEYS[at]
end
local raws = redis.call('MGET', unpack(records))

-- As in done.lua.
local function complete(record, index, raw, asked)
  local waited, check, fence, attempt, created, changed, till, also, number, dropped, notes, claim,
    subject, history, point, reply = struct.unpack('>BI4I8I4I8I8I8I8I4I4BI2I2I4I4I4', raw, 4)
  local history_ends = 110 + claim + subject + history
  local same = fence + 3 * attempt + 5 * created + 31 * claim + 37 * subject
  if notes >= 16 or struct.unpack('>I8', asked) ~= fence
    or #raw ~= history_ends + point + reply
    or check ~= (same + 7 * changed + 11 * till + 13 * also + 17 * number + 19 * dropped
      + 23 * notes + 2320 + 41 * point + 43 * reply + 47 * history) % 4294967291 then
    return 0
  end
  local ends, id = now + struct.unpack('>I8', raw, 133), string.sub(record, -32)
  notes, history, reply = notes + 1, history + 29, #asked - 8
  check = (same + 7 * now + 11 * ends + 19 * dropped + 23 * notes + 1943 + 43 * reply
    + 47 * history) % 4294967291
  redis.call('ZADD', index, string.format('%d', 105553116266495 - ends), id)
  redis.call('SET', record,
    struct.pack('>c4I4I8I4I8I8I8I8I4I4BI2I2I4I4I4', 'J\2C\0', check, fence, attempt, created, now,
      ends, 0, 0, dropped, notes, claim, subject, history, 0, reply)
    .. string.sub(raw, 78, history_ends)
    .. struct.pack('>c13I8', '\0\11\0\9completed', now) .. asked)
  if waited == 1 then
    local settled = id .. string.sub(asked, 1, 8)
    redis.pcall('PUBLISH', string.sub(index, 2, -6) .. ':settled', settled)
  end
  return 1
end

for at, record in ipairs(records) do
  local raw = raws[at]
  given[at] = 0
  if raw and #raw >= 188 and string.sub(raw, 1, 3) == 'J\2P' and not done[record] then
    done[record] = true
    given[at] = complete(record, KEYS[2 * at], raw, ARGV[at])
  end
end
return given
