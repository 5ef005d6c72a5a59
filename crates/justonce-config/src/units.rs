//! Durations and sizes as people write them.

use std::time::Duration;

/// Reads `72h`, `1500ms` or `1h 30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Zero of anything is nothing.
        return if text.bytes().all(|byte| byte == b'0') {
            Ok(Duration::ZERO)
        } else {
            Err(format!("a duration needs a unit, as in \"{text}s\""))
        };
    }
    humantime::parse_duration(text)
        .map_err(|_| "expected a duration, as in \"30s\", \"1500ms\", \"72h\" or \"30d\"".into())
}

/// The units of sizes, by their names in small letters.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("k", 1_000),
    ("kib", 1 << 10),
    ("mb", 1_000_000),
    ("m", 1_000_000),
    ("mib", 1 << 20),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
];

/// Reads `1MB`, `64KiB` or a number of bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size, as in \"1MB\", \"64KiB\" or a number of bytes".to_owned();
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_lowercase();
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    number.checked_mul(*bytes).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("72h"), Ok(Duration::from_secs(72 * 3600)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("30").unwrap_err().contains("\"30s\""));
        for wrong in ["", "h", "1 parsec", "-5s", "99999999999999999999y"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_decimal_or_binary_as_their_unit_says() {
        assert_eq!(size("1MB"), Ok(1_000_000));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("4 MiB"), Ok(4 << 20));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(size("2gb"), Ok(2_000_000_000));
        for wrong in
            ["", "MB", "1.5MB", "-1", "1TB", "99999999999999999999", "18446744073709551615k"]
        {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
