-- The fast path of complete: the claim is in progress and its owner completes it. It does what
-- settle.lua does, without what only the rarer cases need: every function that is defined costs
-- time.
local raw = redis.call('GET', KEYS[1])
if raw and #raw >= LEAST_BYTES then
  local magic, version, state, waited, check, fence, attempt, created, changed, till, also, number,
    dropped, notes, claim, subject, point, reply = struct.unpack(HEAD, raw)
  local point_at = HEAD_BYTES + 34 + claim + subject
  local history_at = point_at + point + reply
  if magic == 'J' and version == 1 and state == 'P' and notes < 16
    and string.sub(raw, 9, 16) == ARGV[3] and #raw >= history_at - 1
    and check == head_sum(state, fence, attempt, created, changed, till, also, number, dropped,
      notes, claim, subject, point, reply) then
    local ends, length = now + struct.unpack('>I8', raw, RETENTION_AT), #ARGV[4]
    check = head_sum('C', fence, attempt, created, now, ends, 0, 0, dropped, notes + 1, claim,
      subject, 0, length)
    local id = string.sub(KEYS[1], -32)
    redis.call('ZADD', KEYS[2], string.format('%.0f', 2 * CLASS + ends), id)
    redis.call('SET', KEYS[1],
      struct.pack(HEAD, 'J', 1, 'C', 0, check, fence, attempt, created, now, ends, 0, 0, dropped,
        notes + 1, claim, subject, 0, length)
      .. string.sub(raw, HEAD_BYTES + 1, point_at - 1) .. ARGV[4] .. string.sub(raw, history_at)
      .. struct.pack('>I2I8', 11, now) .. ARGV[3] .. '\0\9completed')
    if waited == 1 then
      redis.pcall('PUBLISH', string.sub(KEYS[2], 2, -6) .. ':settled', id .. ARGV[3])
    end
    return 'applied'
  end
end
