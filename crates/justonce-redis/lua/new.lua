-- The second fast path of begin: nothing is there, and the operation is claimed.

-- Puts the record where it belongs in the index, and gives a fence. A fence is the server's time in
-- microseconds, or the next number where that is not above all fences of the bucket: it grows when
-- the clock is set back, and also when a failover lost the last of them. The last one of a bucket
-- lies in its index, as the score of a member without a name: 2^53 less, so that it comes first,
-- where it is found soonest.
local due_before, due_shown
local function granted(record, index, micros, above, due)
  local fence, id = math.max(micros, above + 1), string.sub(record, -32)
  local last = string.format('%d', fence - 9007199254740992)
  -- Those who come together are mostly due together.
  if due ~= due_before then
    due_before, due_shown = due, string.format('%d', due)
  end
  if redis.call('ZADD', index, 'GT', 'CH', due_shown, id, last, '') ~= 2 then
    -- One of the two was not raised.
    last = redis.call('ZSCORE', index, '') + 9007199254740992
    fence = math.max(last, above) + 1
    redis.call('ZADD', index, due_shown, id, string.format('%d', fence - 9007199254740992), '')
  end
  return fence
end

-- Claims, and gives the fence and the record to keep; nothing if it comes too late.
local function claim_new(record, index, micros, now, terms, body, point)
  local class, lease, sum, late = struct.unpack('>I8I8I8I8', terms)
  if now >= late then
    return nil
  end
  local till = now + lease
  local fence = granted(record, index, micros, 0, class + till)
  -- The same as head_sum: the caller has summed up all that does not depend on time and fence.
  local check = (sum + fence + 36 * now) % 4294967291
  return fence, struct.pack('>c4I4I8I4I8I8I8I8', 'J\2P\0', check, fence, 1, now, now, till, now)
    .. body .. struct.pack('>I8I8', now, fence) .. point
end
