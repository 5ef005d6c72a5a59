-- The layout of a record in its key. src/codec reads and writes the same.
--
--   head: 'J', version, state, has waiters, check sum of the head, fence, attempt, created, changed,
--         till, also, number of the checkpoint, notes dropped, notes, and the lengths of
--         claim, subject, history, checkpoint and reply
--   then: fingerprint (33 bytes), claim (policy, token, check sum, owner), subject, history (the
--         notes), checkpoint, reply
--
-- Most records have one claim and at most one completion, and the head implies their notes. A
-- record without notes was claimed by its owner when it was created, and, if it is completed,
-- completed when it was changed. Adding a note writes the implied ones first.
--
-- The reply of a completed record begins with its fence: it is what the owner handed in.
--
--   state             till            also
--   P  in progress    lease ends      claimed at
--   C  completed      retention ends
--   F  failed         retention ends
--   W  may be retried back-off ends   retention ends
--   U  unknown                                        (the reply is the reason)
--   T  tombstone      refuses until   retention ended (nothing follows the head)
local HEAD, HEAD_BYTES = '>c1Bc1BI4I8I4I8I8I8I8I4I4BI2I2I4I4I4', 77
local POLICY_AT = 111
-- Behind the policy, the token and their check sum.
local OWNER_AT = 169
-- The head, the fingerprint and a claim whose owner has no name.
local LEAST_BYTES = 168
-- The index orders a bucket by class, and by the moment when a record is due.
local CLASS = 2 ^ 45

-- Modulo the largest prime below 2^32, so that no changed bit goes unnoticed. Moments and fences
-- stay below 2^51, the whole below 2^53: doubles are exact.
local function head_sum(state, fence, attempt, created, changed, till, also, number, dropped, notes,
  claim, subject, history, point, reply)
  return (fence + 3 * attempt + 5 * created + 7 * changed + 11 * till + 13 * also + 17 * number
    + 19 * dropped + 23 * notes + 29 * string.byte(state) + 31 * claim + 37 * subject + 41 * point
    + 43 * reply + 47 * history) % 4294967291
end
