-- resolve: an operator or a probe decides an unknown operation.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence, outcome, how, who, name, why
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'resolve', 'superseded')
end
local how = ARGV[5]
local words = { 'resolved', ARGV[6], ARGV[7], how, ARGV[8] }
if r.state == 'U' or is_held(r) then
  if how == 'completed' then
    return settle(r, 'C', ARGV[4], unpack(words))
  elseif how == 'failed' then
    return settle(r, 'F', ARGV[4], unpack(words))
  end
  -- The record stays for its retention, to show who released it and why.
  r.point, r.number = '', 0
  return free(r, unpack(words))
elseif r.state == 'P' then
  return refuse(r, 'resolve', 'not_unknown')
elseif how == 'released' and is_free(r) then
  return same()
elseif (how == 'completed' and r.state == 'C' or how == 'failed' and r.state == 'F')
  and r.reply == ARGV[4] then
  return same()
end
return refuse(r, 'resolve', 'settled')
