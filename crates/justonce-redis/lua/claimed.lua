local function claim_this()
  local fence, kept = claim_new(KEYS[1], KEYS[2], micros, now, ARGV[1], ARGV[2], ARGV[3] or '')
  if not fence then
    return 'late'
  end
  redis.call('SET', KEYS[1], kept)
  return fence
end

if not raw then
  return claim_this()
end

