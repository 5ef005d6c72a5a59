-- The second fast path of begin: nothing is there, and the operation is claimed.

-- The fence after this one. It is the server's time in microseconds, or the next number where that
-- is not above the last fence: it grows when the clock is set back, and also when a failover lost
-- the last of them.
local function next_fence(last, micros)
  return math.max((tonumber(last) or 0) + 1, micros)
end

-- Puts the record into the index and gives what to keep in its key; nothing if it comes too late.
local due_before, due_shown
local function claim_new(record, index, fence, now, terms, body, point)
  local class, lease, sum, late = struct.unpack('>I8I8I8I8', terms)
  if now >= late then
    return nil
  end
  local till = now + lease
  local due = class + till
  -- Those who come together are mostly due together.
  if due ~= due_before then
    due_before, due_shown = due, string.format('%d', due)
  end
  redis.call('ZADD', index, due_shown, string.sub(record, -32))
  -- The same as head_sum: the caller has summed up all that does not depend on time and fence.
  local check = (sum + fence + 36 * now) % 4294967291
  return struct.pack('>c4I4I8I4I8I8I8I8', 'J\3P\0', check, fence, 1, now, now, till, now)
    .. body .. point
end
