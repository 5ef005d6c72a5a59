-- Replaces a record by a tombstone, which refuses late requests.
local function bury(r, ends)
  store({
    state = 'T', waited = 0, fence = r.fence, attempt = 0, created = 0, changed = ends,
    till = ends + r.refuse, also = ends, number = 0, dropped = 0, notes = 0, claim_bytes = 0,
    subject_bytes = 0, fixed = '', point = '', reply = '', history = '',
  }, true)
end
