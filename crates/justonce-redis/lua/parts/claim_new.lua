-- The second fast path of begin: there is no record, and the operation is claimed.

-- The next fence: the server's time in microseconds, or the number after the last fence if that is
-- larger. It grows when the clock is set back, and when a failover lost the last fence.
local function next_fence(last, micros)
  return math.max((tonumber(last) or 0) + 1, micros)
end

-- Puts the record into the index. Gives the value of its key, or nil if the begin is late.
local due_before, due_shown
local function claim_new(record, index, fence, now, terms, body, point)
  local class, lease, sum, late = struct.unpack('>I8I8I8I8', terms)
  if now >= late then
    return nil
  end
  local till = now + lease
  local due = class + till
  -- The claims of one batch are mostly due at the same moment.
  if due ~= due_before then
    due_before, due_shown = due, string.format('%d', due)
  end
  redis.call('ZADD', index, due_shown, string.sub(record, -32))
  -- The same as head_sum: the caller has summed the parts that depend on neither time nor fence.
  local check = (sum + fence + 36 * now) % 4294967291
  return struct.pack('>c4I4I8I4I8I8I8I8', 'J\3P\0', check, fence, 1, now, now, till, now)
    .. body .. point
end
