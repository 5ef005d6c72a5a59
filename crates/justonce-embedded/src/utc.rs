//! Moments as people write them.

use justonce_core::Timestamp;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Days from 0000-03-01 to 1970-01-01, and in 400 years.
const DAYS_TO_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

/// A moment in UTC, to the second: `2026-11-19T15:30:00Z`.
pub(crate) fn utc(moment: Timestamp) -> String {
    let (days, ms) = (moment.as_millis() / DAY_MS, moment.as_millis() % DAY_MS);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    // Years that begin in March have their leap day at the end.
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_700_000_000_999, "2023-11-14T22:13:20Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Timestamp::from_millis(ms)), text);
        }
    }
}
