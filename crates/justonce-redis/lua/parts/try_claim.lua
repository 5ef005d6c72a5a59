local function claim_this()
  local fence = next_fence(redis.call('GET', KEYS[3]), micros)
  local kept = claim_new(KEYS[1], KEYS[2], fence, now, ARGV[1], ARGV[2], ARGV[3] or '')
  if not kept then
    return 'late'
  end
  redis.call('MSET', KEYS[1], kept, KEYS[3], string.format('%d', fence))
  return fence
end

if not raw then
  return claim_this()
end
