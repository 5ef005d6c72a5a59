//! The canonical form of a JSON text.
//!
//! Key order and white space do not matter, array order does. Numbers are compared by their exact
//! decimal value and are never rounded: `9007199254740993` and `9007199254740992` stay two
//! numbers, while `1.50` and `15e-1` are one. What is not plain JSON (a parse error, a repeated
//! key, a lone surrogate, nesting too deep) counts byte for byte.

use std::borrow::Cow;

/// How deep a text may be nested before it counts byte for byte.
const MAX_DEPTH: usize = 127;
/// How many members there is room for at first.
const MEMBERS: usize = 8;
/// The longest run of digits that a number with an exponent is written out to.
const MAX_PLAIN_DIGITS: i64 = 40;

/// Whether a byte ends a run of plain characters in a string: a quotation mark, an escape, or what
/// no string may hold.
#[expect(clippy::indexing_slicing, reason = "the compiler reckons it out, and would notice")]
const ENDS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

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
    // Members that are out of order are written twice before they are in order.
    let out = String::with_capacity(2 * text.len());
    let mut reader = Reader { text, at: 0, copied: 0, out };
    reader.value(MAX_DEPTH)?;
    reader.copy()?;
    match reader.next() {
        Some(_) => None,
        None => Some(reader.out),
    }
}

/// Reads a text strictly and writes its canonical form, in one pass. What is in that form already
/// is copied as late as possible, and then at once.
struct Reader<'a> {
    text: &'a str,
    /// What comes before this was read.
    at: usize,
    /// What comes before this was written, or has nothing to be written.
    copied: usize,
    out: String,
}

/// A member of an object, and where it stands in what is written.
struct Member<'a> {
    name: Cow<'a, str>,
    start: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.next()? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => None,
        }
    }

    /// Members are written as they come, and moved only if they are out of order.
    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        if self.next()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let mut members: Vec<Member<'a>> = Vec::with_capacity(MEMBERS);
        let mut in_order = true;
        loop {
            if self.next()? != b'"' {
                return None;
            }
            let start = self.length();
            let name = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            self.at += 1;
            self.value(depth)?;
            in_order = in_order && members.last().is_none_or(|last| last.name < name);
            members.push(Member { name, start, end: self.length() });
            match self.next()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        if !in_order {
            self.copy()?;
            put_in_order(&mut self.out, &mut members)?;
        }
        self.at += 1;
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(depth)?;
            match self.next()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }

    /// Writes a string in its one form, and gives its characters.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at + 1;
        let rest = self.text.as_bytes().get(start..)?;
        let length =
            rest.iter().position(|byte| ENDS_PLAIN.get(usize::from(*byte)) == Some(&true))?;
        match rest.get(length)? {
            // Nothing in it needs an escape.
            b'"' => {
                self.at = start + length + 1;
                self.text.get(start..start + length).map(Cow::Borrowed)
            }
            b'\\' => self.escaped(length).map(Cow::Owned),
            _ => None,
        }
    }

    /// A string with escapes, the first of them behind so many bytes.
    fn escaped(&mut self, mut length: usize) -> Option<String> {
        let rest = self.text.get(self.at + 1..)?.as_bytes();
        loop {
            match *rest.get(length)? {
                b'"' => break,
                // What follows belongs to it, also if it is a quotation mark.
                b'\\' => length += 2,
                _ => length += 1,
            }
        }
        let end = self.at + length + 2;
        // Valid escapes are what serde_json accepts.
        let text = serde_json::from_str::<String>(self.text.get(self.at..end)?).ok()?;
        let written = serde_json::to_string(&text).ok()?;
        self.write_instead(&written, end)?;
        Some(text)
    }

    /// Integers are written as they are; other numbers by their exact decimal value.
    fn number(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + usize::from(bytes.get(self.at) == Some(&b'-'));
        end = match bytes.get(end)? {
            b'0' => end + 1,
            _ => digits(bytes, end)?,
        };
        if !matches!(bytes.get(end), Some(b'.' | b'e' | b'E')) {
            self.at = end;
            return Some(());
        }
        if bytes.get(end) == Some(&b'.') {
            end = digits(bytes, end + 1)?;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
            end = digits(bytes, end + 1 + usize::from(sign))?;
        }
        match exact_decimal(self.text.get(self.at..end)?) {
            Some(decimal) => self.write_instead(&decimal, end),
            None => {
                self.at = end;
                Some(())
            }
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word.as_bytes()).then_some(())
    }

    /// The next byte that is not white space.
    fn next(&mut self) -> Option<u8> {
        match *self.text.as_bytes().get(self.at)? {
            b' ' | b'\t' | b'\n' | b'\r' => self.behind_space(),
            byte => Some(byte),
        }
    }

    #[cold]
    fn behind_space(&mut self) -> Option<u8> {
        self.copy()?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let length = rest.iter().position(|byte| !space(byte)).unwrap_or(rest.len());
        self.at += length;
        self.copied = self.at;
        rest.get(length).copied()
    }

    /// How much is written once all that was read is.
    fn length(&self) -> usize {
        self.out.len() + (self.at - self.copied)
    }

    /// Writes what was read and is not written yet, as it is.
    fn copy(&mut self) -> Option<()> {
        self.out.push_str(self.text.get(self.copied..self.at)?);
        self.copied = self.at;
        Some(())
    }

    /// Writes something instead of what comes next, to where that ends.
    fn write_instead(&mut self, written: &str, end: usize) -> Option<()> {
        self.copy()?;
        self.out.push_str(written);
        (self.at, self.copied) = (end, end);
        Some(())
    }
}

/// Where a run of digits ends; nothing if there is none.
fn digits(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    (count > 0).then_some(start + count)
}

/// Writes the members of an object, which stand at the end, again, in the order of their names.
/// Nothing if a name is there twice: parsers disagree on which of the two counts, so such a text is
/// not merged with any other.
fn put_in_order(out: &mut String, members: &mut [Member<'_>]) -> Option<()> {
    let (start, end) = (members.first()?.start, out.len());
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if !members.is_sorted_by(|a, b| a.name < b.name) {
        return None;
    }
    for (number, member) in members.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.extend_from_within(member.start..member.end);
    }
    out.drain(start..end);
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
mod tests;
