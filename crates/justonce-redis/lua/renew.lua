-- renew: extends the lease, up to its cap.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence
-- gives 'capped' | {time left} | why it changed nothing
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'renew', 'superseded')
elseif r.state == 'U' or is_held(r) then
  return refuse(r, 'renew', 'held')
elseif r.state ~= 'P' then
  return refuse(r, 'renew', 'settled')
end
local cap = r.also + r.lease_cap
if now >= cap then
  return 'capped'
end
-- A clock that was set back must not shorten a lease that was already granted.
r.till, r.changed = math.max(math.min(now + r.lease, cap), r.till), now
store(r, true)
return { math.max(r.till - now, 0) }
