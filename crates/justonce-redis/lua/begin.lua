-- begin: claims an operation that is absent, free or lapsed.
--
-- KEYS  record, index, the last fence
-- ARGV  numbers for the fast path (class, lease, sum, when it is late), the record from
--       the number of its checkpoint to its subject, and, where there are any, the first
--       checkpoint, confirm, moment
-- gives 'late' | fence | {fence, attempt, checkpoint} | {fence, since, reason, 'held'}
--       | {moment, record}
local requested = string.sub(ARGV[2], 26, 58)

local function claim_again(r)
  local waited, before = r.waited, r.fence
  local subject_at = POLICY_AT + r.claim_bytes
  local subject = string.sub(r.raw, subject_at, subject_at + r.subject_bytes - 1)
  local claim = string.sub(ARGV[2], 59, 58 + struct.unpack('>I2', ARGV[2], 10))
  r.fixed = string.sub(r.raw, HEAD_BYTES + 1, POLICY_AT - 1) .. claim .. subject
  if r.on_lapsed ~= RESUME or r.point == '' then
    r.point = ARGV[3] or ''
  end
  r.attempt = math.min(r.attempt + 1, 4294967295)
  r.state, r.waited, r.reply, r.number, r.changed = 'P', 0, '', 0, now
  r.claim_bytes, r.also = #claim, now
  r.on_lapsed, r.on_failure, r.max_attempts, r.lease = struct.unpack('>BBI4I4', claim)
  r.till = now + r.lease
  r.fence = math.max(next_fence(redis.call('GET', KEYS[3]), micros), r.fence + 1)
  note(r, own_fence(r), 'taken_over', string.sub(claim, OWNER_AT - POLICY_AT + 1))
  store(r, true)
  redis.call('SET', KEYS[3], string.format('%d', r.fence))
  if waited == 1 then
    wake({ fence = before })
  end
  return { r.fence, r.attempt, r.point }
end

-- Fingerprints of different versions cannot be compared: they count as equal.
local function agrees(print)
  return string.byte(print) ~= string.byte(requested) or print == requested
end

local r = read(raw)
if not r then
  return 'damaged'
elseif r.state == 'T' then
  return claim_this()
end
local ends = ended(r)
if ends then
  -- A record that is not yet replaced by its tombstone refuses as well.
  return now < ends + r.refuse and { now, raw } or claim_this()
elseif not agrees(string.sub(raw, HEAD_BYTES + 1, POLICY_AT - 1)) then
  return { now, raw }
elseif r.state == 'P' then
  local reason = held_because(r)
  if reason then
    local since = r.till
    hold(r, reason, since)
    return { r.fence, since, reason, 'held' }
  end
  return claim_again(r)
elseif r.state == 'W' then
  return claim_again(r)
end
return { now, raw }
