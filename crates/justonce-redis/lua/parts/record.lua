-- A record as a table, and its state at a time.
local POLICY = '>BBI4I4I4I5I5I5I5'
local RESUME, HOLD = 1, 2
local RELEASE, RETRY = 1, 2

-- A note about a fence, given as its eight bytes.
local function line(fence, moment, ...)
  local text = ''
  for _, word in ipairs({ ... }) do
    text = text .. struct.pack('>I2', #word) .. word
  end
  return struct.pack('>I2', #text) .. text .. struct.pack('>I8', moment) .. fence
end

-- Writes the notes that the head implies.
local function write_notes(r)
  local fence = string.sub(r.raw, 9, 16)
  local owner = string.sub(r.raw, OWNER_AT, POLICY_AT + r.claim_bytes - 1)
  r.history, r.notes = line(fence, r.created, 'claimed', owner), 1
  if r.state == 'C' then
    r.history, r.notes = r.history .. line(fence, r.changed, 'completed'), 2
  end
end

-- The record in these bytes; nil if they are damaged.
local function read(raw)
  if #raw < HEAD_BYTES then
    return nil
  end
  local magic, version, state, waited, check, fence, attempt, created, changed, till, also, number,
    dropped, notes, claim, subject, history, point, reply = struct.unpack(HEAD, raw)
  if magic ~= 'J' or version ~= 3 or check ~= head_sum(state, fence, attempt, created, changed,
    till, also, number, dropped, notes, claim, subject, history, point, reply) then
    return nil
  end
  if state == 'T' then
    return { state = state, waited = waited, fence = fence, till = till, also = also }
  end
  local history_at = HEAD_BYTES + 34 + claim + subject
  local point_at = history_at + history
  local reply_at = point_at + point
  if #raw < LEAST_BYTES or #raw ~= reply_at + reply - 1 then
    return nil
  end
  local fence_bytes = 0
  if state == 'C' then
    fence_bytes = 8
    if string.sub(raw, reply_at, reply_at + 7) ~= string.sub(raw, 9, 16) then
      return nil
    end
  end
  local on_lapsed, on_failure, max_attempts, lease, lease_cap, retention, refuse, first, max
    = struct.unpack(POLICY, raw, POLICY_AT)
  local r = {
    raw = raw, state = state, waited = waited, fence = fence, attempt = attempt, created = created,
    changed = changed, till = till, also = also, number = number, dropped = dropped, notes = notes,
    claim_bytes = claim, subject_bytes = subject,
    fixed = string.sub(raw, HEAD_BYTES + 1, history_at - 1),
    point = string.sub(raw, point_at, reply_at - 1),
    reply = string.sub(raw, reply_at + fence_bytes),
    history = string.sub(raw, history_at, point_at - 1),
    on_lapsed = on_lapsed, on_failure = on_failure, max_attempts = max_attempts, lease = lease,
    lease_cap = lease_cap, retention = retention, refuse = refuse, first = first, max = max,
  }
  if notes == 0 then
    write_notes(r)
  end
  return r
end

-- When the retention ended; nil while it runs, or without one.
local function ended(r)
  local ends
  if r.state == 'C' or r.state == 'F' then
    ends = r.till
  elseif r.state == 'W' then
    ends = r.also
  end
  return ends and now >= ends and ends or nil
end

-- Whether the attempt was the last one allowed.
local function is_last(r)
  return r.max_attempts > 0 and r.attempt >= r.max_attempts
end

-- Why a lapsed claim is held; nil if the next begin takes it over.
local function held_because(r)
  if r.on_lapsed == HOLD then
    return 'lapsed'
  end
  return is_last(r) and 'attempts_exhausted' or nil
end

-- Whether a claim has lapsed and is unknown now.
local function is_held(r)
  return r.state == 'P' and now >= r.till and held_because(r) ~= nil
end
