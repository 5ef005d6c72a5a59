//! The canonical form of a JSON text.
//!
//! Key order and white space do not matter, array order does. Numbers are compared by their exact
//! decimal value and are never rounded: `9007199254740993` and `9007199254740992` stay two
//! numbers, while `1.50` and `15e-1` are one. What is not plain JSON (a parse error, a repeated
//! key, a lone surrogate, nesting too deep) counts byte for byte.

use std::borrow::Cow;

/// How deep a text may be nested before it counts byte for byte. The parser refuses more anyway.
const MAX_DEPTH: usize = 127;
/// The longest run of digits that a number with an exponent is written out to.
const MAX_PLAIN_DIGITS: i64 = 40;

/// A payload in the form in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Canonical<'a> {
    /// JSON, in canonical form.
    Json(String),
    /// Anything else, as it came.
    Raw(&'a [u8]),
}

impl<'a> Canonical<'a> {
    /// The canonical form of a payload.
    ///
    /// ```
    /// use justonce_core::Canonical;
    ///
    /// let a = Canonical::of(br#"{"b": [2, 1.0], "a": "\u0041"}"#);
    /// assert_eq!(a.as_bytes(), br#"{"a":"A","b":[2,1]}"#);
    /// assert_eq!(Canonical::of(b"not json").as_bytes(), b"not json");
    /// ```
    #[must_use]
    pub fn of(payload: &'a [u8]) -> Self {
        match canonical_json(payload) {
            Some(json) => Self::Json(json),
            None => Self::Raw(payload),
        }
    }

    /// The bytes to compare or hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Raw(bytes) => bytes,
        }
    }

    /// A tag that keeps a canonical text apart from raw bytes that look the same.
    pub(crate) fn kind(&self) -> &'static [u8] {
        match self {
            Self::Json(_) => b"json",
            Self::Raw(_) => b"raw",
        }
    }
}

/// The canonical text, or nothing if the payload is no plain JSON.
fn canonical_json(payload: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(payload).ok()?;
    // The parser vouches for the grammar, so the scanner below only has to find the tokens.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut scanner = Scanner { text, at: 0 };
    let mut out = String::with_capacity(text.len());
    scanner.value(&mut out, MAX_DEPTH)?;
    Some(out)
}

/// Walks over a text that is known to be JSON.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A member of an object, and where it stands in what was written so far.
struct Member<'a> {
    name: Cow<'a, str>,
    start: usize,
    end: usize,
}

impl<'a> Scanner<'a> {
    fn value(&mut self, out: &mut String, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(out, depth.checked_sub(1)?),
            b'[' => self.array(out, depth.checked_sub(1)?),
            b'"' => self.string(out).map(|_| ()),
            b'-' | b'0'..=b'9' => self.number(out),
            _ => {
                out.push_str(self.take_while(|byte| byte.is_ascii_alphabetic())?);
                Some(())
            }
        }
    }

    /// Members are written as they come, and moved only if they are out of order.
    fn object(&mut self, out: &mut String, depth: usize) -> Option<()> {
        self.at += 1;
        out.push('{');
        let inside = out.len();
        let mut members: Vec<Member<'a>> = Vec::new();
        while self.peek()? != b'}' {
            let start = out.len();
            let name = self.string(out)?;
            self.peek()?;
            self.at += 1;
            out.push(':');
            self.value(out, depth)?;
            members.push(Member { name, start, end: out.len() });
            out.push(',');
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        if !members.is_sorted_by(|a, b| a.name < b.name) {
            put_in_order(out, inside, &mut members)?;
        }
        if !members.is_empty() {
            out.pop();
        }
        out.push('}');
        Some(())
    }

    fn array(&mut self, out: &mut String, depth: usize) -> Option<()> {
        self.at += 1;
        out.push('[');
        while self.peek()? != b']' {
            self.value(out, depth)?;
            if self.peek()? == b',' {
                self.at += 1;
                out.push(',');
            }
        }
        self.at += 1;
        out.push(']');
        Some(())
    }

    /// Writes a string in its one form, and gives its characters.
    fn string(&mut self, out: &mut String) -> Option<Cow<'a, str>> {
        self.peek()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        let mut plain = true;
        loop {
            match *bytes.get(end)? {
                b'"' => break,
                // What follows belongs to it, also if it is a quotation mark.
                b'\\' => (plain, end) = (false, end + 2),
                _ => end += 1,
            }
        }
        let token = self.text.get(start..=end)?;
        self.at = end + 1;
        if plain {
            // Nothing in it needs an escape, or it would not be JSON.
            out.push_str(token);
            return self.text.get(start + 1..end).map(Cow::Borrowed);
        }
        let text = serde_json::from_str::<String>(token).ok()?;
        out.push_str(&serde_json::to_string(&text).ok()?);
        Some(Cow::Owned(text))
    }

    /// Integers are written as they are; other numbers by their exact decimal value.
    fn number(&mut self, out: &mut String) -> Option<()> {
        let mut is_integer = true;
        let number = self.take_while(|byte| {
            let is_special = matches!(byte, b'.' | b'e' | b'E');
            is_integer &= !is_special;
            is_special || matches!(byte, b'-' | b'+' | b'0'..=b'9')
        })?;
        match if is_integer { None } else { exact_decimal(number) } {
            Some(decimal) => out.push_str(&decimal),
            None => out.push_str(number),
        }
        Some(())
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take_while(&mut self, mut belongs: impl FnMut(u8) -> bool) -> Option<&'a str> {
        let start = self.at;
        while self.text.as_bytes().get(self.at).is_some_and(|byte| belongs(*byte)) {
            self.at += 1;
        }
        self.text.get(start..self.at)
    }
}

/// Writes the members of an object again, in the order of their names. Nothing if a name is there
/// twice: parsers disagree on which of the two counts, so such a text is not merged with any other.
fn put_in_order(out: &mut String, inside: usize, members: &mut [Member<'_>]) -> Option<()> {
    members.sort_by(|a, b| a.name.cmp(&b.name));
    if !members.is_sorted_by(|a, b| a.name < b.name) {
        return None;
    }
    let written = out.get(inside..)?.to_owned();
    out.truncate(inside);
    for Member { start, end, .. } in members {
        out.push_str(written.get(start.checked_sub(inside)?..end.checked_sub(inside)?)?);
        out.push(',');
    }
    Some(())
}

/// The shortest exact form of a number with a fraction or an exponent, without rounding. Nothing
/// for exponents beyond counting, which count byte for byte.
fn exact_decimal(number: &str) -> Option<String> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().ok()?;
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return Some(format!("{sign}0"));
    }
    let trailing = all.len() - all.trim_end_matches('0').len();
    let exponent = exponent
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(i64::try_from(trailing).ok()?)?;
    let length = i64::try_from(digits.len()).ok()?.checked_add(exponent)?;
    if exponent >= 0 && length <= MAX_PLAIN_DIGITS {
        let zeros = "0".repeat(usize::try_from(exponent).ok()?);
        Some(format!("{sign}{digits}{zeros}"))
    } else {
        Some(format!("{sign}{digits}e{exponent}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        match Canonical::of(text.as_bytes()) {
            Canonical::Json(json) => json,
            Canonical::Raw(_) => format!("raw:{text}"),
        }
    }

    #[test]
    fn big_numbers_are_not_rounded() {
        assert_eq!(json("9007199254740993"), "9007199254740993");
        assert_ne!(json("9007199254740993"), json("9007199254740992"));
        assert_ne!(json("0.1000000000000000055"), json("0.1"));
        assert_ne!(json("1e400"), json("1e401"));
        assert_ne!(json("100000000000000000000000000000000000000000001"), json("1e44"));
    }

    #[test]
    fn equal_numbers_are_equal_however_spelled() {
        for (a, b) in [("1.0", "1"), ("1.50", "15e-1"), ("1E2", "100"), ("-0.5", "-5e-1")] {
            assert_eq!(json(a), json(b), "{a} {b}");
        }
        assert_eq!(json("0.0"), "0");
        assert_eq!(json("1e99999999999999999999"), "1e99999999999999999999");
    }

    #[test]
    fn order_and_white_space_do_not_matter_but_arrays_do() {
        assert_eq!(json("{ \"b\" : [ 1 , 2 ] ,\n\"a\":null}"), r#"{"a":null,"b":[1,2]}"#);
        assert_ne!(json("[1,2]"), json("[2,1]"));
        assert_eq!(json("[ ]"), "[]");
        assert_eq!(json("{ }"), "{}");
    }

    #[test]
    fn strings_are_compared_by_their_characters() {
        assert_eq!(json(r#""\u0041\/\n""#), json("\"A/\\n\""));
        assert_eq!(json(r#""a\\""#), r#""a\\""#);
        assert_ne!(json(r#""1""#), json("1"));
    }

    #[test]
    fn what_is_not_plain_json_counts_byte_for_byte() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#""\ud800""#,
            "01",
            "{",
            "",
            "1 2",
            "nul",
        ] {
            assert!(json(text).starts_with("raw:"), "{text}");
        }
        let deep = "[".repeat(500) + &"]".repeat(500);
        assert!(json(&deep).starts_with("raw:"));
        assert!(matches!(Canonical::of(b"\"\xff\""), Canonical::Raw(_)));
    }
}
