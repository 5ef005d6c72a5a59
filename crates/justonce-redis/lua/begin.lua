-- begin: claims an operation that is absent, free or lapsed.
--
-- KEYS  record, index, fences
-- ARGV  moment, confirm, fingerprint, claim, subject, from when it is late, owner, first checkpoint
-- gives 'late' | {fence, attempt, checkpoint} | {fence, since, reason, 'held'} | {moment, record}

local function claim_again(r)
  local waited, before = r.waited, r.fence
  local subject_at = PROMISE_AT + r.claim_bytes
  local subject = string.sub(r.raw, subject_at, subject_at + r.subject_bytes - 1)
  r.fixed = string.sub(r.raw, HEAD_BYTES + 1, PROMISE_AT - 1) .. ARGV[4] .. subject
  if r.on_lapsed ~= RESUME or r.point == '' then
    r.point = ARGV[8]
  end
  r.fence, r.attempt = mint(r.fence), math.min(r.attempt + 1, 4294967295)
  r.state, r.waited, r.reply, r.number, r.changed = 'P', 0, '', 0, now
  r.claim_bytes, r.also = #ARGV[4], now
  r.on_lapsed, r.on_failure, r.max_attempts, r.lease = struct.unpack('>BBI4I8', ARGV[4])
  r.till = now + r.lease
  note(r, own_fence(r), 'taken_over', ARGV[7])
  store(r, true)
  if waited == 1 then
    wake({ fence = before })
  end
  return { r.fence, r.attempt, r.point }
end

-- Fingerprints of different versions cannot be compared, so they agree.
local function agrees(print)
  return string.byte(print) ~= string.byte(ARGV[3]) or print == ARGV[3]
end

local r = read(raw)
if not r then
  return 'damaged'
elseif r.state == 'T' then
  return claim_new()
end
local ends = ended(r)
if ends then
  -- A tombstone that nobody has made yet refuses as well.
  return now < ends + r.refuse and { now, raw } or claim_new()
elseif not agrees(string.sub(raw, HEAD_BYTES + 1, PROMISE_AT - 1)) then
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
