//! Durations, sizes and lists in words.

use std::fmt::Display;
use std::time::Duration;

use http::HeaderName;

const SECOND: u128 = 1000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;
/// Up to here hours are what people say: a retention of 72 hours.
const MAX_SAID_IN_HOURS: u128 = 4 * DAY;

/// `30 seconds`, `72 hours`, `30 days`.
pub(super) fn duration(time: Duration) -> String {
    let millis = time.as_millis();
    let (unit, name) = match millis {
        0 => (SECOND, "second"),
        _ if millis.is_multiple_of(DAY) && millis > MAX_SAID_IN_HOURS => (DAY, "day"),
        _ if millis.is_multiple_of(HOUR) => (HOUR, "hour"),
        _ if millis.is_multiple_of(MINUTE) => (MINUTE, "minute"),
        _ if millis.is_multiple_of(SECOND) => (SECOND, "second"),
        _ => (1, "millisecond"),
    };
    match millis / unit {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

/// `4 MiB`, `1 MB`, `17 bytes`.
pub(super) fn size(bytes: usize) -> String {
    let units =
        [(1 << 20, "MiB"), (1_000_000, "MB"), (1 << 10, "KiB"), (1_000, "kB"), (1, "bytes")];
    let fits = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (unit, name) = fits.unwrap_or((1, "bytes"));
    format!("{} {name}", bytes / unit)
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list<T: Display>(items: &[T]) -> String {
    match items {
        [] => "nothing".to_owned(),
        [one] => one.to_string(),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(ToString::to_string).collect();
            format!("{} and {last}", most.join(", "))
        }
    }
}

/// `Idempotency-Key`, as people write it, in backticks.
pub(super) fn header(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    format!("`{}`", words.collect::<Vec<_>>().join("-"))
}

/// Headers, as a list.
pub(super) fn headers<'h>(names: impl IntoIterator<Item = &'h HeaderName>) -> String {
    let names: Vec<String> = names.into_iter().map(header).collect();
    list(&names)
}

/// Breaks a text into lines of at most `width` characters, where words allow it.
pub(super) fn wrap(text: &str, first: &str, next: &str, width: usize) -> String {
    let mut done = String::new();
    let mut line = first.to_owned();
    let mut is_fresh = true;
    for word in text.split_whitespace() {
        if !is_fresh && line.chars().count() + 1 + word.chars().count() > width {
            done.push_str(&line);
            done.push('\n');
            line = next.to_owned();
            is_fresh = true;
        }
        if !is_fresh {
            line.push(' ');
        }
        line.push_str(word);
        is_fresh = false;
    }
    done + &line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_as_people_say_them() {
        let said = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!(said(0), "0 seconds");
        assert_eq!(said(1), "1 second");
        assert_eq!(said(90), "90 seconds");
        assert_eq!(said(900), "15 minutes");
        assert_eq!(said(72 * 3600), "72 hours");
        assert_eq!(said(30 * 86_400), "30 days");
        assert_eq!(duration(Duration::from_millis(1500)), "1500 milliseconds");
        assert_eq!(size(4 << 20), "4 MiB");
        assert_eq!(size(1_000_000), "1 MB");
        assert_eq!(size(17), "17 bytes");
    }

    #[test]
    fn lists_and_lines_are_put_together() {
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        let names = ["x-a", "etag"].map(HeaderName::from_static);
        assert_eq!(headers(&names), "`X-A` and `Etag`");
        assert_eq!(list::<&str>(&[]), "nothing");
        assert_eq!(wrap("aa bb cc", "- ", "  ", 7), "- aa bb\n  cc");
        assert_eq!(wrap("aaaaaaaaaa b", "- ", "  ", 7), "- aaaaaaaaaa\n  b");
    }
}
