-- complete: stores the outcome.
--
-- KEYS  record, index
-- ARGV  fence and outcome, and, where there are any, confirm, moment; behind the fast path as in the
--       other writes
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
