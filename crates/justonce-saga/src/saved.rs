//! What logs and journals share about what is saved.

use justonce_core::MAX_CHECKPOINT_BYTES;

/// The name of the checkpoint of a stuck saga.
pub(crate) const STUCK: &str = "stuck";
/// The name of the checkpoint of what is parked until an operator retries it.
pub(crate) const PARKED: &str = "parked";
/// How much is kept of a reason, in bytes: it is for operators.
const MAX_WHY_BYTES: usize = 1024;
/// The largest log or journal, in bytes. The rest of a checkpoint is left for the reason of
/// parking: what cannot be saved must still be able to say so.
pub(crate) const MAX_SAVED_BYTES: usize = MAX_CHECKPOINT_BYTES - 8 * MAX_WHY_BYTES;

/// The most that the next checkpoint may have, by the size of the one before. An earlier
/// version left no room for reasons: what it began goes on.
pub(crate) const fn most_after(before: usize) -> usize {
    if before > MAX_SAVED_BYTES { MAX_CHECKPOINT_BYTES } else { MAX_SAVED_BYTES }
}

/// What is kept of a reason.
pub(crate) fn cut(why: String) -> String {
    cut_at(why, MAX_WHY_BYTES)
}

/// What is kept of a reason where there is less room.
pub(crate) fn cut_at(mut why: String, most: usize) -> String {
    let mut end = why.len().min(most);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why.truncate(end);
    why
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
pub(crate) const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_two_letters() {
        assert_eq!(cut("no lorry".into()), "no lorry");
        let long = cut("é".repeat(MAX_WHY_BYTES));
        assert_eq!(long.len(), MAX_WHY_BYTES);
        assert_eq!(cut(format!("x{}", "é".repeat(MAX_WHY_BYTES))).len(), MAX_WHY_BYTES - 1);
    }
}
