-- due: the ids of records that a sweep would change now.
--
-- KEYS  indexes
-- ARGV  moment, limit
local CLASS = 2 ^ 45
-- Claims that are held when they lapse, completed, failed, tombstones, released.
local DUE = { 1, 2, 3, 5, 6 }
local found, limit = {}, tonumber(ARGV[2])
for _, key in ipairs(KEYS) do
  for _, class in ipairs(DUE) do
    if #found >= limit then
      return found
    end
    local range, from, to = 'ZRANGEBYSCORE', class * CLASS, class * CLASS + now
    if class == 2 then
      -- Completed records are in reverse order.
      range, from, to = 'ZREVRANGEBYSCORE', 3 * CLASS - 1, 3 * CLASS - 1 - now
    end
    local ids = redis.call(range, key, string.format('%d', from), string.format('%d', to), 'LIMIT',
      0, limit - #found)
    for _, id in ipairs(ids) do
      found[#found + 1] = id
    end
  end
end
return found
