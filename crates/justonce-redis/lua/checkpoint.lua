-- checkpoint: saves a checkpoint.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence, number, checkpoint, name
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'checkpoint', 'superseded')
elseif r.state == 'U' or is_held(r) then
  return refuse(r, 'checkpoint', 'held')
elseif r.state ~= 'P' then
  return refuse(r, 'checkpoint', 'settled')
end
local number = tonumber(ARGV[4])
-- The last checkpoint again, or a late copy of an earlier one.
if r.point ~= '' and (number < r.number or (number == r.number and r.point == ARGV[5])) then
  return same()
end
r.point, r.number, r.changed = ARGV[5], number, now
note(r, own_fence(r), 'checkpointed', ARGV[6])
store(r, false)
return 'applied'
