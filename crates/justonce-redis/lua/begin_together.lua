-- begin_together: several begins, as far as they go the two fast paths of begin. What does not is
-- left alone and goes alone.
--
-- KEYS  record, index of each
-- ARGV  what the fast path reckons with, the record from the number of its checkpoint to the words
--       of its first note, of each
-- gives {moment, for each: fence | record | 0 if it must go alone}
local time, records, given, claimed = redis.call('TIME'), {}, {}, {}
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
for at = 1, #KEYS, 2 do
  records[#records + 1] = KEYS[at]
end
local raws = redis.call('MGET', unpack(records))

-- As granted in new.lua.
local function granted(fence, due, record, index)
  local id, last = string.sub(record, -32), string.format('%d', fence - 9007199254740992)
  due = string.format('%d', due)
  if redis.call('ZADD', index, 'GT', 'CH', due, id, last, '') ~= 2 then
    fence = redis.call('ZSCORE', index, '') + 9007199254740992 + 1
    redis.call('ZADD', index, due, id, string.format('%d', fence - 9007199254740992), '')
  end
  return fence
end

given[1] = now
for at, record in ipairs(records) do
  local raw, reply = raws[at], 0
  if raw then
    if #raw >= 77 then
      local state, till = string.byte(raw, 3), struct.unpack('>I8', raw, 37)
      -- 'U', or what time has not ended yet.
      if state == 85 or now < till then
        reply = raw
      end
    end
  elseif not claimed[record] then
    local class, lease, sum, late = struct.unpack('>I8I8I8I8', ARGV[2 * at - 1])
    if now < late then
      claimed[record] = true
      local till = now + lease
      -- Each has a microsecond of its own; the next script comes later than that.
      reply = granted(micros + at, class + till, record, KEYS[2 * at])
      local check = (sum + reply + 36 * now) % 4294967291
      redis.call('SET', record,
        struct.pack('>c4I4I8I4I8I8I8I8', 'J\2P\0', check, reply, 1, now, now, till, now)
        .. ARGV[2 * at] .. struct.pack('>I8I8', now, reply))
    end
  end
  given[at + 1] = reply
end
return given
