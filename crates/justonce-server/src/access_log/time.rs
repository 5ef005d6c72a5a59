//! The time of a line.

use std::time::SystemTime;

/// When a request came, by the machine's clock: the log is read beside those of other programs.
#[expect(clippy::disallowed_methods, reason = "shown to people; nothing is decided by it")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// `2026-11-19T19:11:20.123Z`.
pub(super) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `19/Nov/2026:19:11:20 +0000`.
pub(super) fn common(time: SystemTime) -> String {
    let text = rfc3339(time);
    let mut parts = text.split(['-', 'T', '.']);
    let mut next = || parts.next().unwrap_or_default();
    let (year, month, day, clock) = (next(), next(), next(), next());
    let month = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?));
    format!("{day}/{}/{year}:{clock} +0000", month.unwrap_or(&"???"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_as_logs_have_them() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_115_480_123);
        assert_eq!(rfc3339(at), "2026-11-19T19:11:20.123Z");
        assert_eq!(common(at), "19/Nov/2026:19:11:20 +0000");
        let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        assert_eq!(common(new_year), "01/Jan/2026:00:00:00 +0000");
    }
}
