-- The fast path of complete: the claim is in progress and its owner completes it. It does what
-- settle.lua does, without the parts for rarer cases: every function that is defined and every
-- string costs time. Gives the new value of the key, or nil if nothing was changed.

-- The shares of the state in the check sum of a head: its factor, and the letter's code.
local SUM_OF_P, SUM_OF_C = 29 * 80, 29 * 67
-- The largest score of the class of completed records, which are in reverse order: see score().
local LAST_COMPLETED = 3 * 2 ^ 45 - 1
local ends_before, ends_shown
local function fast_complete(record, index, raw, now, completion)
  if #raw < 168 or string.sub(raw, 1, 3) ~= 'J\3P' then
    return nil
  end
  local waited, check, fence, attempt, created, changed, till, also, number, dropped, notes, claim,
    subject, history, point, reply = struct.unpack('>BI4I8I4I8I8I8I8I4I4BI2I2I4I4I4', raw, 4)
  local history_ends = 110 + claim + subject + history
  local same = fence + 3 * attempt + 5 * created + 31 * claim + 37 * subject
  if notes >= 16 or struct.unpack('>I8', completion) ~= fence
    or #raw ~= history_ends + point + reply
    or check ~= (same + 7 * changed + 11 * till + 13 * also + 17 * number + 19 * dropped
      + 23 * notes + SUM_OF_P + 41 * point + 43 * reply + 47 * history) % 4294967291 then
    return nil
  end
  local ends, id, note = now + struct.unpack('>I5', raw, 125), string.sub(record, -32), ''
  if notes > 0 then
    notes, history = notes + 1, history + 29
    note = struct.pack('>c13I8', '\0\11\0\9completed', now) .. string.sub(completion, 1, 8)
  end
  reply = #completion
  check = (same + 7 * now + 11 * ends + 19 * dropped + 23 * notes + SUM_OF_C + 43 * reply
    + 47 * history) % 4294967291
  if ends ~= ends_before then
    ends_before, ends_shown = ends, string.format('%d', LAST_COMPLETED - ends)
  end
  redis.call('ZADD', index, ends_shown, id)
  if waited == 1 then
    local settled = id .. string.sub(completion, 1, 8)
    redis.pcall('PUBLISH', string.sub(index, 2, -6) .. ':settled', settled)
  end
  return struct.pack('>c4I4I8I4I8I8I8I8I4I4BI2I2I4I4I4', 'J\3C\0', check, fence, attempt, created,
      now, ends, 0, 0, dropped, notes, claim, subject, history, 0, reply)
    .. string.sub(raw, 78, history_ends) .. note .. completion
end
