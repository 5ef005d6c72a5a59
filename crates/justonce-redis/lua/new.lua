-- The second fast path of begin: nothing is there, and the operation is claimed.

-- Puts the record where it belongs in the index, and gives a fence. A fence is the server's time in
-- microseconds, or the next number where that is not above all fences of the bucket: it grows when
-- the clock is set back, and also when a failover lost the last of them. The last one of a bucket
-- lies in its index, as the score of a member without a name: 2^53 less, so that it comes first,
-- where it is found soonest.
local function granted(above, due)
  local fence, id = math.max(micros, above + 1), string.sub(KEYS[1], -32)
  local last = string.format('%d', fence - 9007199254740992)
  due = string.format('%d', due)
  if redis.call('ZADD', KEYS[2], 'GT', 'CH', due, id, last, '') ~= 2 then
    -- One of the two was not raised.
    last = redis.call('ZSCORE', KEYS[2], '') + 9007199254740992
    fence = math.max(last, above) + 1
    redis.call('ZADD', KEYS[2], due, id, string.format('%d', fence - 9007199254740992), '')
  end
  return fence
end

local function claim_new()
  local class, lease, sum, late = struct.unpack('>I8I8I8I8', ARGV[1])
  if now >= late then
    return 'late'
  end
  local till = now + lease
  local fence = granted(0, class + till)
  -- The same as head_sum: the caller has summed up all that does not depend on time and fence.
  local check = (sum + fence + 36 * now) % 4294967291
  redis.call('SET', KEYS[1],
    struct.pack('>c4I4I8I4I8I8I8I8', 'J\2P\0', check, fence, 1, now, now, till, now)
    .. ARGV[2] .. struct.pack('>I8I8', now, fence) .. (ARGV[3] or ''))
  return fence
end

if not raw then
  return claim_new()
end
