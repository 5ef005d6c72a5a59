-- sweep: applies lapses and ended retentions to one record.
--
-- KEYS  record, index
-- ARGV  moment
-- gives 'kept' | 'removed' | 'buried' | 'held'
local raw = redis.call('GET', KEYS[1])
if not raw then
  -- The record was removed by hand.
  redis.call('ZREM', KEYS[2], member())
  return 'kept'
end
local r = read(raw)
if not r then
  return 'damaged'
elseif r.state == 'T' then
  if now < r.till then
    return 'kept'
  end
  remove(r)
  return 'removed'
elseif is_held(r) then
  hold(r, held_because(r), r.till)
  return 'held'
end
local ends = ended(r)
if not ends then
  return 'kept'
elseif now >= ends + r.refuse then
  remove(r)
  return 'removed'
end
bury(r, ends)
return 'buried'
