-- How a record lies in its key, and what time makes of it. src/codec.rs reads and writes the same.
--
--   head: 'J', version, state, waited for, check sum of the head, fence, attempt, created, changed,
--         till, also, number of the checkpoint, notes dropped, notes, and the lengths of
--         claim, subject, checkpoint and reply
--   fingerprint (33) | claim: promise, token, check sum, owner | subject | checkpoint | reply | notes
--
--   state             till            also
--   P  in progress    lease ends      claimed at
--   C  completed      retention ends
--   F  failed         retention ends
--   W  may be retried back-off ends   retention ends
--   U  unknown                                        (the reply is the reason)
--   T  tombstone      refuses until   retention ended (nothing follows the head)
local HEAD, HEAD_BYTES = '>c1Bc1BI4I8I4I8I8I8I8I4I4BI2I2I4I4', 73
local PROMISE, PROMISE_AT = '>BBI4I8I8I8I8I8I8', 107
-- The head, the fingerprint and a claim whose owner has no name.
local LEAST_BYTES = 184
local RESUME, HOLD = 1, 2
local RELEASE, RETRY = 1, 2

local function head_sum(r)
  return (r.fence + 3 * r.attempt + 5 * r.created + 7 * r.changed + 11 * r.till + 13 * r.also
    + 17 * r.number + 19 * r.dropped + 23 * r.notes + 29 * string.byte(r.state)
    + 31 * r.claim_bytes + 37 * r.subject_bytes + 41 * #r.point + 43 * #r.reply) % 4294967296
end

-- The record in these bytes; nothing if they are damaged.
local function read(raw)
  if #raw < HEAD_BYTES then
    return nil
  end
  local r, magic, version, check, point_bytes, reply_bytes = { raw = raw }, nil, nil, nil, nil, nil
  magic, version, r.state, r.waited, check, r.fence, r.attempt, r.created, r.changed, r.till,
    r.also, r.number, r.dropped, r.notes, r.claim_bytes, r.subject_bytes, point_bytes, reply_bytes
    = struct.unpack(HEAD, raw)
  if magic ~= 'J' or version ~= 1 then
    return nil
  end
  if r.state == 'T' then
    r.point, r.reply = '', ''
    return head_sum(r) == check and r or nil
  end
  local point_at = HEAD_BYTES + 34 + r.claim_bytes + r.subject_bytes
  local reply_at = point_at + point_bytes
  local history_at = reply_at + reply_bytes
  if #raw < LEAST_BYTES or #raw < history_at - 1 then
    return nil
  end
  r.fixed = string.sub(raw, HEAD_BYTES + 1, point_at - 1)
  r.point = string.sub(raw, point_at, reply_at - 1)
  r.reply = string.sub(raw, reply_at, history_at - 1)
  r.history = string.sub(raw, history_at)
  if head_sum(r) ~= check then
    return nil
  end
  r.on_lapsed, r.on_failure, r.max_attempts, r.lease, r.lease_cap, r.retention, r.refuse, r.first,
    r.max = struct.unpack(PROMISE, raw, PROMISE_AT)
  return r
end

-- When the retention ended; nothing while it runs, or for what has none.
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

-- Why a lapsed claim is held; nothing if the next begin takes over.
local function held_because(r)
  if r.on_lapsed == HOLD then
    return 'lapsed'
  end
  return is_last(r) and 'attempts_exhausted' or nil
end

-- Whether time has made a claim unknown.
local function is_held(r)
  return r.state == 'P' and now >= r.till and held_because(r) ~= nil
end
