-- due: the names of records of which time demands something now.
--
-- KEYS  indexes
-- ARGV  moment, limit
local CLASS = 2 ^ 45
-- Claims that are held when they lapse, completed, failed, tombstones.
local DUE = { 1, 2, 3, 5 }
local found, limit = {}, tonumber(ARGV[2])
for _, key in ipairs(KEYS) do
  for _, class in ipairs(DUE) do
    if #found >= limit then
      return found
    end
    local from, to = class * CLASS, class * CLASS + now
    local ids = redis.call('ZRANGEBYSCORE', key, string.format('%.0f', from),
      string.format('%.0f', to), 'LIMIT', 0, limit - #found)
    for _, id in ipairs(ids) do
      found[#found + 1] = id
    end
  end
end
return found
