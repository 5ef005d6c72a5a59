//! Mutants of the parts that the scripts of the Redis store share, by file.

use super::mutant::{Mutant, mutant};
use super::redis::WAIT;

/// The mutants of the parts.
pub(super) const PARTS: &[Mutant] = &[
    mutant("lua/parts/bury.lua", "till = ends + r.refuse", "till = ends"),
    mutant("lua/parts/bury.lua", "also = ends, ", "also = 0, "),
    mutant("lua/parts/claim_new.lua", "(tonumber(last) or 0) + 1", "0").by("together::"),
    mutant("lua/parts/claim_new.lua", "+ 1, micros)", "+ 1, 0)").by("together::"),
    mutant("lua/parts/claim_new.lua", "if now >= late then\n    return nil\n  end\n", ""),
    mutant("lua/parts/claim_new.lua", "if due ~= due_before then", "if not due_before then")
        .by("together::"),
    mutant("lua/parts/claim_new.lua", "redis.call('ZADD', index, ⋯)\n", ""),
    mutant("lua/parts/clock.lua", "time[1] * 1000", "time[1] * 1000 - 3600000"),
    mutant("lua/parts/clock.lua", " + math.floor(time[2] / 1000)", ""),
    mutant("lua/parts/fast_complete.lua", " or string.sub(raw, 1, 3) ~= 'J\\3P'", "")
        .by("contents::"),
    mutant("lua/parts/fast_complete.lua", " or struct.unpack('>I8', completion) ~= fence\n", "\n"),
    mutant("lua/parts/fast_complete.lua", "notes >= 16 or ", ""),
    mutant("lua/parts/fast_complete.lua", "or #raw ~= history_ends + point + reply\n", "")
        .by("contents::"),
    mutant(
        "lua/parts/fast_complete.lua",
        "or check ~= (same ⋯ then\n    return",
        "then\n    return",
    )
    .by("contents::"),
    mutant("lua/parts/fast_complete.lua", "now + struct.unpack('>I5', raw, 125)", "now"),
    mutant("lua/parts/fast_complete.lua", "notes, history = notes + 1, history + 29", ""),
    mutant("lua/parts/fast_complete.lua", "if ends ~= ends_before then", "if not ends_before then")
        .by("together::"),
    mutant("lua/parts/fast_complete.lua", "redis.call('ZADD', index, ends_shown, id)", ""),
    mutant("lua/parts/fast_complete.lua", "redis.pcall('PUBLISH', ⋯settled)\n", ""),
    mutant("lua/parts/head.lua", " + 3 * attempt", ""),
    mutant("lua/parts/head.lua", " + 29 * string.byte(state)", ""),
    mutant("lua/parts/is_kept.lua", "state == 85 or now < till", "now < till")
        .survives("what is unknown takes the slow way to the same answer"),
    mutant("lua/parts/is_kept.lua", "state == 85 or now < till", "true"),
    mutant("lua/parts/letters.lua", "letters[at] or common", "common"),
    mutant(
        "lua/parts/owner.lua",
        "elseif r.state == 'T' or ended(r) then",
        "elseif r.state == 'T' then",
    ),
    mutant("lua/parts/owner.lua", "elseif r.state == 'T' or ended(r) then", "elseif ended(r) then"),
    mutant("lua/parts/owner.lua", "return string.sub(r.raw, 9, 16) ~= ARGV[3]", "return false"),
    mutant("lua/parts/owner.lua", "note(r, ARGV[3], 'refused', step)", ""),
    mutant("lua/parts/owner.lua", "  store(r, false)\n", ""),
    mutant("lua/parts/owner.lua", "redis.call('SETRANGE', KEYS[1], 0, 'J')", "")
        .by("replicas::")
        .survives(WAIT),
    mutant("lua/parts/record.lua", "  if notes == 0 then\n    write_notes(r)\n  end\n", ""),
    mutant("lua/parts/record.lua", " or check ~= head_sum(⋯reply) then", " then").by("contents::"),
    mutant("lua/parts/record.lua", " or #raw ~= reply_at + reply - 1", "").by("contents::"),
    mutant("lua/parts/record.lua", "    if string.sub(raw, reply_at, reply_at + 7) ⋯    end\n", "")
        .by("contents::"),
    mutant("lua/parts/record.lua", "ends = r.also", "ends = r.till"),
    mutant("lua/parts/record.lua", "now >= ends and ends", "ends"),
    mutant("lua/parts/record.lua", "r.max_attempts > 0 and ", ""),
    mutant("lua/parts/record.lua", "r.attempt >= r.max_attempts", "r.attempt > r.max_attempts"),
    mutant("lua/parts/record.lua", "if r.on_lapsed == HOLD then\n    return 'lapsed'\n  end\n", ""),
    mutant("lua/parts/record.lua", " and now >= r.till and ", " and "),
    mutant(
        "lua/parts/return_existing.lua",
        "  if #raw < 77 then\n    return 'damaged'\n  end\n",
        "",
    )
    .by("contents::"),
    mutant("lua/parts/return_existing.lua", "  if is_kept(raw, now) then", "  if false then"),
    mutant("lua/parts/return_existing.lua", "redis.call('SETRANGE', KEYS[1], 0, 'J')", "")
        .by("replicas::")
        .survives(WAIT),
    mutant(
        "lua/parts/return_existing.lua",
        "(micros - micros % 1000) / 1000",
        "micros / 1000 - 3600000",
    ),
    mutant("lua/parts/settle.lua", "now, now + r.retention, 0\n", "now, now, 0\n"),
    mutant("lua/parts/settle.lua", "reply, '', 0\n", "reply, r.point, r.number\n")
        .survives("what has ended hands no checkpoint over: it only costs bytes"),
    mutant("lua/parts/settle.lua", "math.max(r.attempt - 1, 0)", "r.attempt"),
    mutant(
        "lua/parts/settle.lua",
        "if r.attempt <= 1 then\n    remove(r)\n    return 'applied'\n  end\n",
        "",
    ),
    mutant("lua/parts/settle.lua", " and r.till == r.changed", ""),
    mutant("lua/parts/try_claim.lua", "  redis.call('MSET', KEYS[1], ⋯)\n", ""),
    mutant("lua/parts/try_claim.lua", ", KEYS[3], string.format('%d', fence))", ")")
        .by("together::"),
    mutant("lua/parts/try_claim.lua", "ARGV[3] or ''", "''"),
    mutant("lua/parts/try_complete.lua", "  redis.call('SET', KEYS[1], kept)\n", ""),
    mutant("lua/parts/try_complete.lua", "ARGV[3], ARGV[4] = ⋯)\n", ""),
    mutant("lua/parts/try_complete.lua", "time[1] * 1000", "time[1] * 1000 - 3600000"),
    mutant("lua/parts/write.lua", "FAILED * CLASS - 1 - r.till", "FAILED * CLASS + r.till"),
    mutant("lua/parts/write.lua", "held_because(r) and HELD or FREE", "FREE"),
    mutant("lua/parts/write.lua", "free and RELEASED or FAILED", "FAILED"),
    mutant("lua/parts/write.lua", "redis.call('ZADD', KEYS[2], ⋯)\n", ""),
    mutant("lua/parts/write.lua", "redis.call('SET', KEYS[1], head ⋯)\n", ""),
    mutant("lua/parts/write.lua", "redis.pcall('PUBLISH', channel, ⋯)\n", ""),
    mutant("lua/parts/write.lua", "  r.waited = 0\n", "")
        .survives("an end that is announced twice wakes nobody, or somebody who looks again"),
    mutant("lua/parts/write.lua", "  redis.call('ZREM', KEYS[2], member())\n", ""),
    mutant("lua/parts/write.lua", "  redis.call('DEL', KEYS[1])\n", ""),
    mutant(
        "lua/parts/write.lua",
        "  redis.call('DEL', KEYS[1])\n  if r.waited == 1 then\n    wake(r)\n  end\n",
        "  redis.call('DEL', KEYS[1])\n",
    ),
    mutant("lua/parts/write.lua", "r.dropped = r.dropped + 1", ""),
    mutant("lua/parts/write.lua", "if r.notes >= MAX_NOTES then", "if r.notes > MAX_NOTES then"),
    mutant("lua/parts/write.lua", "note(r, own_fence(r), 'held', reason, cause)", ""),
    mutant("lua/parts/write.lua", "'U', reason, since, 0, 0\n", "'U', reason, now, 0, 0\n"),
];
