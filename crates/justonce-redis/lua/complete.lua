-- complete: stores the outcome.
--
-- KEYS  record, index
-- ARGV  fence and outcome in one, and, where there are any, confirm, moment; behind the fast path
--       confirm, fence and outcome lie where the other writes have them
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'complete', 'superseded')
elseif r.state == 'P' or r.state == 'U' then
  return settle(r, 'C', ARGV[4], 'completed')
elseif r.state == 'C' and r.reply == ARGV[4] then
  return same()
end
return refuse(r, 'complete', 'settled')
