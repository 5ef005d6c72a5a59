//! Whose namespace a key lives in.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::hash;

/// The longest text of a scope, in bytes: it is stored in every record.
pub const MAX_SCOPE_BYTES: usize = 1024;
/// The longest name of one part of a scope, in bytes.
pub const MAX_PART_NAME_BYTES: usize = 32;

/// Whose namespace a key lives in: a set of named parts such as tenant, principal and operation.
///
/// Two scopes are equal if they have the same parts, in whatever order they were given. A part
/// that is missing differs from a part that is empty, so callers without credentials never share
/// a scope with callers that have them.
///
/// ```
/// use justonce_core::Scope;
///
/// // The default: one namespace for everything.
/// let everyone = Scope::global();
///
/// // Customised: one namespace per tenant, caller and kind of operation.
/// let scope = Scope::builder().tenant("acme").secret("principal", "sk_live_1").operation("charge")
///     .build()?;
/// assert_ne!(everyone, scope);
/// assert!(!scope.as_str().contains("sk_live_1"));
/// # Ok::<(), justonce_core::ScopeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    text: Arc<str>,
}

impl Scope {
    /// The scope without parts.
    #[must_use]
    pub fn global() -> Self {
        Self { text: Arc::from("") }
    }

    /// Starts a scope.
    pub fn builder() -> ScopeBuilder {
        ScopeBuilder::default()
    }

    /// The canonical text, `name=value` joined by `&`, sorted by name, reserved characters escaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads a canonical text back, as a store kept it.
    ///
    /// # Errors
    ///
    /// If the text is not one that [`Scope::as_str`] gives.
    pub fn parse(text: &str) -> Result<Self, ScopeError> {
        let mut builder = Self::builder();
        for part in text.split('&').filter(|_| !text.is_empty()) {
            let (name, value) = part.split_once('=').ok_or(ScopeError::NotCanonical)?;
            builder = builder.part(name, unescape(value).ok_or(ScopeError::NotCanonical)?);
        }
        let scope = builder.build()?;
        if scope.as_str() == text { Ok(scope) } else { Err(ScopeError::NotCanonical) }
    }

    /// A text whose checksum says that we wrote it: only its size is checked again.
    pub(crate) fn stored(text: &str) -> Option<Self> {
        (text.len() <= MAX_SCOPE_BYTES).then(|| Self { text: Arc::from(text) })
    }

    /// Whether every part of `filter` is also a part of this scope: `tenant=acme` covers all that
    /// belongs to the tenant.
    #[must_use]
    pub fn is_within(&self, filter: &Self) -> bool {
        filter.parts().all(|wanted| self.parts().any(|part| part == wanted))
    }

    /// The names and values of all parts, sorted by name. Of secrets the value is a hash.
    pub fn named_parts(&self) -> impl Iterator<Item = (&str, String)> {
        self.parts().filter_map(|part| {
            let (name, value) = part.split_once('=')?;
            Some((name, unescape(value)?))
        })
    }

    /// The value of one part, if the scope has it.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<String> {
        self.named_parts().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.text.split('&').filter(|part| !part.is_empty())
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.text)
    }
}

/// Collects the parts of a [`Scope`].
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct ScopeBuilder {
    parts: Vec<(String, String)>,
}

impl ScopeBuilder {
    /// The tenant the caller belongs to.
    pub fn tenant(self, value: impl Into<String>) -> Self {
        self.part("tenant", value)
    }

    /// The caller, by a name that may be shown. For a credential use [`ScopeBuilder::secret`].
    pub fn principal(self, value: impl Into<String>) -> Self {
        self.part("principal", value)
    }

    /// The kind of operation.
    pub fn operation(self, value: impl Into<String>) -> Self {
        self.part("operation", value)
    }

    /// The route the request came by.
    pub fn route(self, value: impl Into<String>) -> Self {
        self.part("route", value)
    }

    /// A part whose value must not be stored or shown, such as an API key: only its hash is kept.
    pub fn secret(self, name: impl Into<String>, value: &str) -> Self {
        let digest = hash::keyed(hash::SECRET_PART, &[value.as_bytes()]);
        self.part(name, format!("~{}", hash::text(&digest)))
    }

    /// Any other part. Names are lower-case letters, digits and `_`.
    pub fn part(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parts.push((name.into(), value.into()));
        self
    }

    /// Finishes the scope.
    ///
    /// # Errors
    ///
    /// If a name is not allowed, a part is given twice, or the whole is too long.
    pub fn build(mut self) -> Result<Scope, ScopeError> {
        self.parts.sort();
        let mut text = String::new();
        let mut previous: Option<&str> = None;
        for (name, value) in &self.parts {
            if !is_part_name(name) {
                return Err(ScopeError::PartName(name.clone()));
            }
            if previous == Some(name) {
                return Err(ScopeError::Repeated(name.clone()));
            }
            if previous.is_some() {
                text.push('&');
            }
            previous = Some(name);
            text.push_str(name);
            text.push('=');
            escape_into(&mut text, value);
        }
        if text.len() > MAX_SCOPE_BYTES {
            return Err(ScopeError::TooLong(text.len()));
        }
        Ok(Scope { text: Arc::from(text) })
    }
}

fn is_part_name(name: &str) -> bool {
    (1..=MAX_PART_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Escapes what separates parts, and everything that would not show on one line.
fn escape_into(text: &mut String, value: &str) {
    for c in value.chars() {
        if matches!(c, '%' | '&' | '=') || c.is_control() {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                text.push_str(&format!("%{byte:02X}"));
            }
        } else {
            text.push(c);
        }
    }
}

/// Reads a text back in which some bytes are written as `%41`; nothing if an escape is wrong.
#[must_use]
pub fn unescape(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Why a scope was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The name of a part is empty, too long, or holds other characters than `a-z 0-9 _`.
    #[error(
        "the scope part name {0:?} is not allowed: use 1 to {max} lower-case letters, digits and _",
        max = MAX_PART_NAME_BYTES
    )]
    PartName(String),
    /// A part was given twice.
    #[error("the scope part {0:?} was given twice")]
    Repeated(String),
    /// The canonical text has this many bytes, more than [`MAX_SCOPE_BYTES`].
    #[error(
        "the scope has {0} bytes, at most {max} are allowed: pass long values as a secret part, \
         which is stored as a hash",
        max = MAX_SCOPE_BYTES
    )]
    TooLong(usize),
    /// The text is not the canonical form of a scope.
    #[error("this text is not the canonical form of a scope")]
    NotCanonical,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_values_cannot_pose_as_parts() {
        let a = Scope::builder().tenant("x").operation("y").build().unwrap();
        let b = Scope::builder().operation("y").tenant("x").build().unwrap();
        assert_eq!(a, b);
        let posing = Scope::builder().operation("y&tenant=x").build().unwrap();
        assert_ne!(a, posing);
        assert!(!posing.is_within(&Scope::builder().tenant("x").build().unwrap()));
    }

    #[test]
    fn a_missing_part_is_not_an_empty_part() {
        let empty = Scope::builder().principal("").build().unwrap();
        assert_ne!(empty, Scope::global());
        assert_eq!(Scope::parse(empty.as_str()).unwrap(), empty);
        assert_eq!(Scope::parse("").unwrap(), Scope::global());
    }

    #[test]
    fn texts_round_trip_and_others_are_refused() {
        let odd = Scope::builder().tenant("a=b&c%d\n\u{7f}é").build().unwrap();
        assert_eq!(Scope::parse(odd.as_str()).unwrap(), odd);
        assert_eq!(Scope::parse("tenant=a%3"), Err(ScopeError::NotCanonical));
        assert_eq!(Scope::parse("tenant=%61"), Err(ScopeError::NotCanonical));
        assert_eq!(Scope::parse("nothing"), Err(ScopeError::NotCanonical));
    }

    #[test]
    fn wrong_parts_are_named_in_the_error() {
        let twice = Scope::builder().tenant("a").tenant("b").build();
        assert_eq!(twice, Err(ScopeError::Repeated("tenant".into())));
        let name = Scope::builder().part("Tenant", "a").build();
        assert!(name.unwrap_err().to_string().contains("\"Tenant\""));
        let long = Scope::builder().tenant("a".repeat(2000)).build();
        assert!(matches!(long, Err(ScopeError::TooLong(_))));
    }

    #[test]
    fn a_scope_is_within_its_parts() {
        let scope = Scope::builder().tenant("acme").operation("charge").build().unwrap();
        let tenant = Scope::builder().tenant("acme").build().unwrap();
        assert!(scope.is_within(&tenant));
        assert!(scope.is_within(&Scope::global()));
        assert!(!tenant.is_within(&scope));
    }
}
