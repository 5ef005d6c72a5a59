-- abandon: the owner stops without knowing whether it took effect.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence, reason
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
  hold(r, ARGV[4], math.min(r.till, now))
  return 'applied'
elseif now >= r.till then
  return same()
end
r.till, r.changed = now, now
note(r, own_fence(r), 'given_up', ARGV[4])
store_ended(r)
return 'applied'
