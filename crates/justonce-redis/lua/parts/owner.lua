-- The writes of an owner: each carries its fence, as eight bytes in ARGV[3]. ARGV[2] is '1' if the
-- caller waits for replicas to confirm.

-- The answer if the record cannot be written, or nil and the record.
local function load()
  local raw = redis.call('GET', KEYS[1])
  if not raw then
    return 'gone'
  end
  local r = read(raw)
  if not r then
    return 'damaged'
  elseif r.state == 'T' or ended(r) then
    return 'gone'
  end
  return nil, r
end

local function is_stale(r)
  return string.sub(r.raw, 9, 16) ~= ARGV[3]
end

-- Refuses the write, with a note for the operator.
local function refuse(r, step, lost)
  note(r, ARGV[3], 'refused', step)
  store(r, false)
  return lost
end

-- An earlier try of the same write was applied. WAIT covers only what this connection wrote, so a
-- byte is written again for it.
local function same()
  if ARGV[2] == '1' then
    redis.call('SETRANGE', KEYS[1], 0, 'J')
  end
  return 'applied'
end
