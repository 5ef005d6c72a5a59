-- The ends of an operation.

-- Completed or failed for good: this is replayed until the retention is over.
local function settle(r, state, reply, ...)
  r.state, r.reply, r.point, r.number = state, reply, '', 0
  r.changed, r.till, r.also = now, now + r.retention, 0
  note(r, own_fence(r), ...)
  store_ended(r)
  return 'applied'
end

-- Frees the key: the next begin claims at once. The attempt does not count.
local function free(r, ...)
  r.state, r.reply, r.attempt = 'W', '', math.max(r.attempt - 1, 0)
  r.changed, r.till, r.also = now, now, now + r.retention
  note(r, own_fence(r), ...)
  store_ended(r)
  return 'applied'
end

-- The first attempt leaves no record.
local function release(r)
  if r.attempt <= 1 then
    remove(r)
    return 'applied'
  end
  return free(r, 'released')
end

-- Whether the record was released: no back-off, and an empty outcome.
local function is_free(r)
  return r.state == 'W' and r.till == r.changed and r.reply == ''
end
