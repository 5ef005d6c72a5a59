-- fail: stores a failure, or what the policy makes of it.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence, outcome, 'passing' or 'permanent', jitter
local JITTER_MAX = 4294967295

-- The product of a duration and the jitter over its maximum, rounded down. Doubles are exact to 53
-- bits and the product has 71, so it is divided in portions of 16 bits.
local function share(duration, jitter)
  local quotient, rest = 0, 0
  for _, unit in ipairs({ 4294967296, 65536, 1 }) do
    local digit = math.floor(duration / unit) % 65536
    rest = rest * 65536 + digit * jitter
    quotient = quotient * 65536 + math.floor(rest / JITTER_MAX)
    rest = rest % JITTER_MAX
  end
  return quotient
end

local function back_off(r)
  local whole = math.min(r.first * 2 ^ math.min(r.attempt - 1, 63), r.max)
  local half = math.floor(whole / 2)
  return half + share(whole - half, tonumber(ARGV[6]))
end

local function fail(r)
  if ARGV[5] == 'passing' and r.on_failure == RELEASE then
    return release(r)
  elseif ARGV[5] == 'passing' and r.on_failure == RETRY and not is_last(r) then
    r.state, r.reply, r.changed, r.till = 'W', ARGV[4], now, now + back_off(r)
    -- Counted from the moment it may be tried again: a retry must never come too late.
    r.also = r.till + r.retention
    note(r, own_fence(r), 'failed_for_now')
    store_ended(r)
    return 'applied'
  end
  return settle(r, 'F', ARGV[4], 'failed_for_good')
end

local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'fail', 'superseded')
elseif r.state == 'P' or r.state == 'U' then
  return fail(r)
elseif r.state == 'F' and r.reply == ARGV[4] then
  return same()
elseif r.state == 'W' and ARGV[5] == 'passing'
  and (r.on_failure == RELEASE or r.reply == ARGV[4]) then
  return same()
end
return refuse(r, 'fail', 'settled')
