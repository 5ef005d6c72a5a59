-- The fast paths of begin come before the parts for rarer cases: every function that is defined,
-- every argument and every string costs time.

-- Whether no begin can change a record now: it is unknown, or neither lapsed nor expired.
local function is_kept(raw, now)
  local state, till = string.byte(raw, 3), struct.unpack('>I8', raw, 37)
  return state == 85 or now < till
end
