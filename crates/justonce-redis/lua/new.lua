-- The other fast path of begin: nothing is there, and the operation is claimed. It comes before all
-- that only the rarer cases need: every function that is defined costs time.

-- A fence is the server's time in microseconds, or the next number where that is not above all
-- fences of the bucket: it grows when the clock is set back, and also when a failover lost the
-- last of them.
local function mint(above)
  if not micros then
    local time = redis.call('TIME')
    micros = time[1] * 1000000 + time[2]
  end
  local fence = math.max(micros, above + 1)
  local last = redis.call('SET', KEYS[3], string.format('%.0f', fence), 'GET')
  last = last and tonumber(last)
  if last and last >= fence then
    fence = last + 1
    redis.call('SET', KEYS[3], string.format('%.0f', fence))
  end
  return fence
end

local function claim_new()
  local late = tonumber(ARGV[6])
  if late and now >= late then
    return 'late'
  end
  local on_lapsed, _, max_attempts, lease = struct.unpack('>BBI4I8', ARGV[4])
  local claim, subject, owner, till = #ARGV[4], #ARGV[5], ARGV[7], now + lease
  local fence = mint(0)
  local check = head_sum('P', fence, 1, now, now, till, now, 0, 0, 1, claim, subject, #ARGV[8],
    0)
  -- Held when it lapses, under `hold` and where one attempt is all there is.
  local class = (on_lapsed == 2 or max_attempts == 1) and CLASS or 0
  redis.call('ZADD', KEYS[2], string.format('%.0f', class + till), string.sub(KEYS[1], -32))
  redis.call('SET', KEYS[1],
    struct.pack(HEAD, 'J', 1, 'P', 0, check, fence, 1, now, now, till, now, 0, 0, 1, claim, subject,
      #ARGV[8], 0)
    .. ARGV[3] .. ARGV[4] .. ARGV[5] .. ARGV[8]
    .. struct.pack('>I2I8I8I2', 11 + #owner, now, fence, 7) .. 'claimed'
    .. struct.pack('>I2', #owner) .. owner)
  return { fence, 1, ARGV[8] }
end

if not raw then
  return claim_new()
end
