-- Changes of a record. Only the first write can fail: the index comes before the record, and a
-- server that is out of memory or read-only refuses the script as a whole.
local MAX_NOTES = 16
local FREE, HELD, COMPLETED, FAILED, UNKNOWN, TOMBSTONE, RELEASED = 0, 1, 2, 3, 4, 5, 6

-- The score in the index. Most records are completed, and most new ones are the last to end. In
-- their class the last to end come first, where inserting is cheapest.
local function score(r)
  if r.state == 'P' then
    return (held_because(r) and HELD or FREE) * CLASS + r.till
  elseif r.state == 'C' then
    return FAILED * CLASS - 1 - r.till
  elseif r.state == 'F' then
    return FAILED * CLASS + r.till
  elseif r.state == 'W' then
    -- A released record has no back-off and an empty outcome.
    local free = r.till == r.changed and r.reply == ''
    return (free and RELEASED or FAILED) * CLASS + r.also
  elseif r.state == 'U' then
    return UNKNOWN * CLASS + r.changed
  end
  return TOMBSTONE * CLASS + r.till
end

local function member()
  return string.sub(KEYS[1], -32)
end

-- Stores the record. With `moved`, its score in the index may have changed.
local function store(r, moved)
  if moved then
    redis.call('ZADD', KEYS[2], string.format('%d', score(r)), member())
  end
  local reply = r.state == 'C' and struct.pack('>I8', r.fence) .. r.reply or r.reply
  local check = head_sum(r.state, r.fence, r.attempt, r.created, r.changed, r.till, r.also,
    r.number, r.dropped, r.notes, r.claim_bytes, r.subject_bytes, #r.history, #r.point, #reply)
  local head = struct.pack(HEAD, 'J', 3, r.state, r.waited, check, r.fence, r.attempt, r.created,
    r.changed, r.till, r.also, r.number, r.dropped, r.notes, r.claim_bytes, r.subject_bytes,
    #r.history, #r.point, #reply)
  redis.call('SET', KEYS[1], head .. r.fixed .. r.history .. r.point .. reply)
end

-- Wakes the waiters of a claim that has just ended. The step is done even if this fails.
local function wake(r)
  local channel = string.sub(KEYS[2], 2, -6) .. ':settled'
  redis.pcall('PUBLISH', channel, member() .. struct.pack('>I8', r.fence))
end

-- Stores a record whose claim, if it had one, ended.
local function store_ended(r)
  local waited = r.waited
  r.waited = 0
  store(r, true)
  if waited == 1 then
    wake(r)
  end
end

local function remove(r)
  redis.call('ZREM', KEYS[2], member())
  redis.call('DEL', KEYS[1])
  if r.waited == 1 then
    wake(r)
  end
end

-- Adds a note about a fence, given as its eight bytes. The first note stays, then the newest.
local function note(r, fence, ...)
  if r.notes >= MAX_NOTES then
    local second = 19 + struct.unpack('>I2', r.history)
    local third = second + 18 + struct.unpack('>I2', r.history, second)
    r.history = string.sub(r.history, 1, second - 1) .. string.sub(r.history, third)
    r.dropped = r.dropped + 1
  else
    r.notes = r.notes + 1
  end
  r.history = r.history .. line(fence, now, ...)
end

local function own_fence(r)
  return struct.pack('>I8', r.fence)
end

-- Makes the operation unknown. A lapse is dated from the lease's expiry.
local function hold(r, reason, since, cause)
  r.state, r.reply, r.changed, r.till, r.also = 'U', reason, since, 0, 0
  note(r, own_fence(r), 'held', reason, cause)
  store_ended(r)
end
