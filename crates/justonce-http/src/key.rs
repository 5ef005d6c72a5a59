//! The key of a request: where it comes from, and its form.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Uri};
use justonce_core::{Canonical, JsonPointer, Key, KeyError, MAX_KEY_BYTES};
use regex::Regex;
use sfv::{BareItem, Item, ItemSerializer, Parser, StringRef};

use crate::headers::KEY;

/// Where a route's keys come from.
///
/// ```
/// use justonce_core::JsonPointer;
/// use justonce_http::{KeySource, Rule};
///
/// // The default: the header `Idempotency-Key`.
/// assert_eq!(KeySource::default(), KeySource::Header(justonce_http::headers::KEY));
///
/// // Customised: a field of the body.
/// let orders = Rule::default().key_source(KeySource::Json(JsonPointer::parse("/order/id")?));
/// # Ok::<(), justonce_core::PointerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// A header.
    Header(HeaderName),
    /// A string or number in a JSON body.
    Json(JsonPointer),
    /// A query parameter.
    Query(Box<str>),
    /// The hash of the request's content: equal requests are one operation.
    Content,
}

impl Default for KeySource {
    fn default() -> Self {
        Self::Header(KEY)
    }
}

/// How keys are written in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySyntax {
    /// As an RFC 9651 String, in quotes, or bare: `"abc"` and `abc` are the same key.
    Lenient,
    /// Only as an RFC 9651 String.
    Strict,
}

/// The form of keys.
///
/// ```
/// use justonce_http::{KeyFormat, KeyShape};
///
/// // The default: 1 to 255 characters.
/// let any = KeyFormat::default();
///
/// // Customised: a UUID, or at least 16 bytes.
/// let uuid = KeyFormat::default().shape(KeyShape::Uuid);
/// let long = KeyFormat::default().length(16..=255);
/// ```
#[derive(Clone, Debug)]
pub struct KeyFormat {
    length: RangeInclusive<usize>,
    shape: KeyShape,
}

/// The form of a key beside its length.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyShape {
    /// Any.
    Any,
    /// A UUID.
    Uuid,
    /// A match of this expression.
    Matches(Regex),
}

impl Default for KeyFormat {
    fn default() -> Self {
        Self { length: 1..=MAX_KEY_BYTES, shape: KeyShape::Any }
    }
}

impl KeyFormat {
    /// Sets the length in bytes. Default: 1 to 255, which is the maximum.
    #[must_use]
    pub fn length(self, length: RangeInclusive<usize>) -> Self {
        Self { length, ..self }
    }

    /// Sets the form beside the length. Default: [`KeyShape::Any`].
    #[must_use]
    pub fn shape(self, shape: KeyShape) -> Self {
        Self { shape, ..self }
    }

    fn check(&self, text: &str) -> Result<Key, BadKey> {
        let (min, max) = (*self.length.start(), *self.length.end());
        if text.len() < min {
            return Err(if text.is_empty() { BadKey::Empty } else { BadKey::TooShort(min) });
        }
        if text.len() > max {
            return Err(BadKey::TooLong(max));
        }
        match &self.shape {
            KeyShape::Any => {}
            KeyShape::Uuid if uuid::Uuid::try_parse(text).is_ok() => {}
            KeyShape::Uuid => return Err(BadKey::NoUuid),
            KeyShape::Matches(regex) if regex.is_match(text) => {}
            KeyShape::Matches(_) => return Err(BadKey::NoMatch),
        }
        Key::client(text).map_err(|error| match error {
            KeyError::Empty => BadKey::Empty,
            KeyError::TooLong(_) => BadKey::TooLong(MAX_KEY_BYTES),
            KeyError::NotPrintable(_) => BadKey::NotPrintable,
        })
    }
}

/// Why a key was refused. It never contains the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadKey {
    /// It is empty.
    Empty,
    /// It has fewer bytes than this.
    TooShort(usize),
    /// It has more bytes than this.
    TooLong(usize),
    /// It has a control character or something beyond ASCII.
    NotPrintable,
    /// It has a space where it is not in quotes.
    Space,
    /// It was sent more than once.
    Repeated,
    /// It is not an RFC 9651 String.
    NoString,
    /// It is neither an RFC 9651 String nor plain text.
    NoText,
    /// It is not a UUID.
    NoUuid,
    /// It does not match the expression of the route.
    NoMatch,
    /// The value in the body is neither a string nor a number.
    NoScalar,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort(min) => {
                return write!(f, "The key is too short: send at least {min} bytes.");
            }
            Self::TooLong(max) => {
                return write!(f, "The key is too long: send at most {max} bytes.");
            }
            Self::Empty => "The key is empty. Send a UUID, for example.",
            Self::NotPrintable => {
                "The key has a control character or a character beyond ASCII. Send printable \
                 ASCII characters only."
            }
            Self::Space => {
                "The key has a space, which only a key in quotes may have. In a query `+` is a \
                 space: a plus sign is written as %2B."
            }
            Self::Repeated => "The key was sent more than once. Send it once.",
            Self::NoString => {
                "The key is not a String as RFC 9651 writes it. Send it in double quotes."
            }
            Self::NoText => {
                "The key can be read in no way. Send it in double quotes, or as visible ASCII \
                 characters without spaces, commas and quotes."
            }
            Self::NoUuid => "The key is not a UUID, which this route requires.",
            Self::NoMatch => "The key does not have the form that this route requires.",
            Self::NoScalar => {
                "What the body has in the key's place is neither a string nor a number."
            }
        })
    }
}

/// Parses the value of a key header. Its input is untrusted, so it is fuzzed.
///
/// # Errors
///
/// If the value does not have the syntax.
pub fn parse_key(value: &[u8], syntax: KeySyntax) -> Result<Cow<'_, str>, BadKey> {
    if value.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(BadKey::Empty);
    }
    let looks_like_string = value.iter().find(|byte| **byte != b' ') == Some(&b'"');
    if looks_like_string
        && let Ok(item) = Parser::new(value).parse::<Item>()
        && let BareItem::String(text) = item.bare_item
    {
        return Ok(Cow::Owned(text.into()));
    }
    match syntax {
        KeySyntax::Strict => Err(BadKey::NoString),
        KeySyntax::Lenient => {
            let text = std::str::from_utf8(value).map_err(|_| BadKey::NoText)?;
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b',' && byte != b'"';
            if text.bytes().all(plain) { Ok(Cow::Borrowed(text)) } else { Err(BadKey::NoText) }
        }
    }
}

/// The key from a header or the query, if the request has one.
pub(crate) fn from_head(
    source: &KeySource,
    syntax: KeySyntax,
    format: &KeyFormat,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Option<Key>, BadKey> {
    let text = match source {
        KeySource::Header(name) => {
            let mut lines = headers.get_all(name).into_iter();
            let Some(line) = lines.next() else { return Ok(None) };
            if lines.next().is_some() {
                return Err(BadKey::Repeated);
            }
            parse_key(line.as_bytes(), syntax)?
        }
        KeySource::Query(name) => {
            let query = uri.query().unwrap_or_default().as_bytes();
            let mut found = form_urlencoded::parse(query).filter(|(other, _)| **other == **name);
            let Some((_, text)) = found.next() else { return Ok(None) };
            if found.next().is_some() {
                return Err(BadKey::Repeated);
            }
            // Often a `+` that was not escaped: two keys must not become one that way.
            if text.contains(' ') {
                return Err(BadKey::Space);
            }
            text
        }
        KeySource::Json(_) | KeySource::Content => return Ok(None),
    };
    format.check(&text).map(Some)
}

/// The key from the body, if it has one.
pub(crate) fn from_body(
    pointer: &JsonPointer,
    format: &KeyFormat,
    body: &Bytes,
) -> Result<Option<Key>, BadKey> {
    let canonical = Canonical::of(body);
    let text = match pointer.find(&canonical) {
        None | Some("null") => return Ok(None),
        Some(text) => text,
    };
    let text = match text.bytes().next() {
        Some(b'"') => serde_json::from_str(text).map_err(|_| BadKey::NoScalar)?,
        Some(b'-' | b'0'..=b'9') => text.to_owned(),
        _ => return Err(BadKey::NoScalar),
    };
    format.check(&text).map(Some)
}

/// A header name in its usual case.
pub(crate) fn header_words(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

/// A key as it is sent to the service: in quotes with the strict syntax or if it needs them.
pub(crate) fn written(key: &Key, syntax: KeySyntax) -> Cow<'_, str> {
    let text = key.as_str();
    let plain = text.bytes().all(|byte| !matches!(byte, b' ' | b',' | b'"' | b'\\'));
    if syntax == KeySyntax::Lenient && plain {
        return Cow::Borrowed(text);
    }
    let Ok(string) = StringRef::from_str(text) else { return Cow::Borrowed(text) };
    let mut quoted = String::with_capacity(text.len() + 2);
    let _ = ItemSerializer::with_buffer(&mut quoted).bare_item(string).finish();
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: [KeySyntax; 2] = [KeySyntax::Lenient, KeySyntax::Strict];

    /// Untrusted input: close to the grammar, or arbitrary.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        let near = "[ \t]{0,2}\"?[a-z0-9\\\\\", ;=%:?@()~-]{0,12}\"?(;[a-z]=?[0-9\"]{0,3})?[ ]?";
        prop_oneof![proptest::collection::vec(any::<u8>(), 0..40), near.prop_map(Vec::from)]
    }

    proptest! {
        #[test]
        fn nothing_makes_the_parser_panic_and_lenient_takes_what_strict_takes(value in values()) {
            let strict = parse_key(&value, KeySyntax::Strict);
            let lenient = parse_key(&value, KeySyntax::Lenient);
            if strict.is_ok() {
                prop_assert_eq!(&strict, &lenient);
            }
            for text in strict.into_iter().chain(lenient) {
                prop_assert!(text.is_ascii());
            }
        }

        #[test]
        fn quotes_make_no_difference(text in "[!#-+--\\[\\]-~]{1,255}") {
            let quoted = format!("\"{text}\"");
            let plain = parse_key(text.as_bytes(), KeySyntax::Lenient);
            prop_assert_eq!(plain.as_deref(), Ok(text.as_str()));
            for syntax in BOTH {
                prop_assert_eq!(&parse_key(quoted.as_bytes(), syntax), &plain);
            }
        }

        #[test]
        fn keys_are_read_as_they_are_written(text in "[ -~]{1,255}") {
            let key = Key::client(&text).unwrap();
            for syntax in BOTH {
                let written = written(&key, syntax);
                let read = parse_key(written.as_bytes(), syntax);
                prop_assert_eq!(read.as_deref(), Ok(text.as_str()));
            }
        }

        #[test]
        fn spaces_need_quotes(text in "[a-z]{1,9} [a-z ]{1,9}") {
            let quoted = format!("\"{text}\"");
            for syntax in BOTH {
                let read = parse_key(quoted.as_bytes(), syntax);
                prop_assert_eq!(read.as_deref(), Ok(text.as_str()));
                prop_assert!(parse_key(text.as_bytes(), syntax).is_err());
            }
        }

        #[test]
        fn parameters_are_ignored(text in "[a-z]{1,9}", name in "[a-z]{1,5}", number in 0..99_i32) {
            let value = format!("\"{text}\";{name}={number}; flag");
            for syntax in BOTH {
                let read = parse_key(value.as_bytes(), syntax);
                prop_assert_eq!(read.as_deref(), Ok(text.as_str()));
            }
        }
    }
}
