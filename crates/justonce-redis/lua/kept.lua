-- The fast paths of begin come before all that only the rarer cases need: every function that is
-- defined, every value that is handed in and every string that is made costs time.

-- Whether no begin can change a record now: it is unknown, or what time has not ended yet.
local function is_kept(raw, now)
  local state, till = string.byte(raw, 3), struct.unpack('>I8', raw, 37)
  return state == 85 or now < till
end
