-- The fast path of begin: a record that no begin can change now is handed back as it is, and the
-- caller reads from it what became of the operation. Nothing is written.
--
-- ARGV[3] is the fingerprint, as it lies in the record.
local raw = redis.call('GET', KEYS[1])
if raw then
  if #raw < 73 then
    return 'damaged'
  end
  local state, till = string.sub(raw, 3, 3), struct.unpack('>I8', raw, 37)
  if state == 'U' or now < till then
    if state == 'P' and ARGV[2] == '1' then
      -- Replicas confirm only what this connection wrote: the same call may come a second time.
      redis.call('SETRANGE', KEYS[1], 0, 'J')
    end
    return { now, raw }
  end
end
