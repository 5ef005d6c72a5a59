-- release: frees the key.
--
-- KEYS  record, index
-- ARGV  moment, confirm, fence
local other, r = load()
if other then
  return other
elseif is_stale(r) then
  return refuse(r, 'release', 'superseded')
elseif r.state == 'P' or r.state == 'U' then
  return release(r)
elseif is_free(r) then
  return same()
end
return refuse(r, 'release', 'settled')
