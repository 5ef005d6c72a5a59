-- abandon: the owner stops without knowing whether it took effect.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence, reason, and the cause if there is one
-- gives, where this step made it unknown, {fence, since, reason, 'held'}
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'abandon', 'superseded')
elseif r.state == 'U' then
  return same()
elseif r.state ~= 'P' then
  return refuse(r, 'abandon', 'settled')
elseif r.on_lapsed == HOLD then
  local since = math.min(r.till, now)
  hold(r, ARGV[4], since, ARGV[5])
  return { r.fence, since, ARGV[4], 'held' }
elseif now >= r.till then
  return same()
end
r.till, r.changed = now, now
note(r, own_fence(r), 'given_up', ARGV[4], ARGV[5])
store_ended(r)
return 'applied'
