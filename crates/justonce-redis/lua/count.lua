-- count: how many records of each class the indexes hold, and some of their ids.
--
-- KEYS  indexes
-- ARGV  moment (unused), ids per class
-- gives for each index and each class: count, {ids}
local CLASS = 2 ^ 45
local counted = {}
for _, key in ipairs(KEYS) do
  for class = 0, 6 do
    local from = string.format('%d', class * CLASS)
    local to = string.format('(%d', (class + 1) * CLASS)
    counted[#counted + 1] = redis.call('ZCOUNT', key, from, to)
    counted[#counted + 1] = redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, ARGV[2])
  end
end
return counted
