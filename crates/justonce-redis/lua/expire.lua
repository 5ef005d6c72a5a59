-- expire: ends the retention of an operation that has ended.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return 'superseded'
elseif r.state ~= 'C' and r.state ~= 'F' then
  return 'not_ended'
elseif r.refuse > 0 then
  bury(r, now)
else
  remove(r)
end
return 'applied'
