-- erase: removes the record of an operation that has ended, or its tombstone.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence
local raw = redis.call('GET', KEYS[1])
if not raw then
  return 'gone'
end
local r = read(raw)
if not r then
  return 'damaged'
end
local ends = r.state ~= 'T' and ended(r)
if r.state == 'T' and now >= r.till or ends and now >= ends + r.refuse then
  return 'gone'
elseif string.sub(raw, 9, 16) ~= ARGV[3] then
  return 'superseded'
elseif r.state ~= 'T' and r.state ~= 'C' and r.state ~= 'F' and not ends then
  return 'not_ended'
end
remove(r)
return 'applied'
