//! Values of requests as parts of a line, so that no request can write a line of its own.

use std::fmt::Write;

/// Appends a value to a line of `name=value` pairs: in quotes if it is empty or has anything but
/// plain characters.
pub(super) fn put_value(line: &mut String, value: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\=".contains(byte);
    if !value.is_empty() && value.iter().all(is_plain) {
        return put_escaped(line, value);
    }
    line.push('"');
    put_escaped(line, value);
    line.push('"');
}

/// Appends the inside of a quoted text: everything but visible ASCII and spaces as `\xHH`.
pub(super) fn put_escaped(line: &mut String, value: &[u8]) {
    for byte in value {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(*byte));
            }
            b' '..=b'~' => line.push(char::from(*byte)),
            // Writing to a text cannot fail.
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
}

/// Appends a JSON string. What is no UTF-8 is replaced.
pub(super) fn put_json(line: &mut String, value: &[u8]) {
    line.push_str(&serde_json::Value::from(String::from_utf8_lossy(value)).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(put: fn(&mut String, &[u8]), value: &[u8]) -> String {
        let mut line = String::new();
        put(&mut line, value);
        line
    }

    #[test]
    fn values_stay_on_their_line_and_in_their_place() {
        let value = |value: &str| shown(put_value, value.as_bytes());
        assert_eq!(value("/payments/1"), "/payments/1");
        assert_eq!(value(""), "\"\"");
        assert_eq!(value("a b"), "\"a b\"");
        assert_eq!(value("a=b"), "\"a=b\"");
        assert_eq!(value("a\" status=200\nb"), "\"a\\\" status=200\\x0ab\"");
        assert_eq!(value("a\\"), "\"a\\\\\"");
        assert_eq!(value("\u{85}\u{1b}[2J\x7f"), "\"\\xc2\\x85\\x1b[2J\\x7f\"");
        assert_eq!(shown(put_value, b"\xff"), "\"\\xff\"");
    }

    #[test]
    fn json_is_json() {
        let text = shown(put_json, b"a\"\n\x1b\xff\xe2\x80\xa8");
        assert!(text.is_ascii() || !text.contains('\n'), "{text}");
        let read: String = serde_json::from_str(&text).unwrap();
        assert_eq!(read, "a\"\n\u{1b}\u{fffd}\u{2028}");
    }
}
