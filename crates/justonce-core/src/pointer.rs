//! JSON pointers (RFC 6901): a place in a JSON text.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use thiserror::Error;

use crate::canonical::Canonical;

/// The most steps a pointer may have.
const MAX_STEPS: usize = 32;

/// A place in a JSON text, as RFC 6901 writes it: `/order/id`.
///
/// ```
/// use justonce_core::{Canonical, JsonPointer};
///
/// let asked = Canonical::of(br#"{"at": 1718, "order": {"id": "o-17"}}"#);
/// let id = JsonPointer::parse("/order/id")?;
/// assert_eq!(id.find(&asked), Some("\"o-17\""));
/// let at = JsonPointer::parse("/at")?;
/// assert_eq!(asked.without(&[at]).as_bytes(), br#"{"order":{"id":"o-17"}}"#);
/// # Ok::<(), justonce_core::PointerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    steps: Vec<String>,
}

impl JsonPointer {
    /// Reads a pointer.
    ///
    /// # Errors
    ///
    /// If it does not start with `/`, escapes wrongly, or has more than 32 steps.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let rest = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        let steps = rest.split('/').map(unescape).collect::<Result<Vec<_>, _>>()?;
        if steps.len() > MAX_STEPS {
            return Err(PointerError::TooDeep(steps.len()));
        }
        Ok(Self { steps })
    }

    /// The canonical text of what is at this place, if the payload is JSON and has it.
    #[must_use]
    pub fn find<'t>(&self, json: &'t Canonical<'_>) -> Option<&'t str> {
        let Canonical::Json(text) = json else { return None };
        self.steps.iter().try_fold(text.as_str(), |text, step| step_into(text, step))
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps
            .iter()
            .try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

impl Canonical<'_> {
    /// The same without what is at these places. Elements of arrays move up. What is not JSON
    /// stays as it is.
    #[must_use]
    pub fn without(self, places: &[JsonPointer]) -> Self {
        let Self::Json(text) = self else { return self };
        Self::Json(places.iter().fold(text, |text, place| match remove(&text, &place.steps) {
            Some(shorter) => shorter,
            None => text,
        }))
    }

    /// Only what is at these places, each with its pointer; missing ones are left out. What is not
    /// JSON stays as it is.
    #[must_use]
    pub fn only(self, places: &[JsonPointer]) -> Self {
        let found: Option<BTreeMap<String, &RawValue>> = match &self {
            Self::Raw(_) => return self,
            Self::Json(_) => places
                .iter()
                .filter_map(|place| Some((place.to_string(), place.find(&self)?)))
                .map(|(place, text)| Some((place, serde_json::from_str(text).ok()?)))
                .collect(),
        };
        match found.and_then(|found| serde_json::to_string(&found).ok()) {
            Some(text) => Self::Json(text),
            None => self,
        }
    }
}

/// The text of a member or element of a canonical text.
fn step_into<'t>(text: &'t str, step: &str) -> Option<&'t str> {
    if text.starts_with('{') {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        members.get(step).map(|value| value.get())
    } else {
        let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        elements.get(index(step)?).map(|value| value.get())
    }
}

/// The text without what is at these steps; nothing if it is not there.
fn remove(text: &str, steps: &[String]) -> Option<String> {
    let (step, rest) = steps.split_first()?;
    if text.starts_with('{') {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
        let member = members.remove(step)?;
        if !rest.is_empty() {
            let shorter = RawValue::from_string(remove(member.get(), rest)?).ok()?;
            members.insert(step.clone(), shorter);
        }
        serde_json::to_string(&members).ok()
    } else {
        let mut elements: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
        let place = elements.get_mut(index(step)?)?;
        if rest.is_empty() {
            elements.remove(index(step)?);
        } else {
            *place = RawValue::from_string(remove(place.get(), rest)?).ok()?;
        }
        serde_json::to_string(&elements).ok()
    }
}

/// An index as RFC 6901 has it: digits without leading zeros.
fn index(step: &str) -> Option<usize> {
    let canonical = step == "0" || !step.starts_with('0');
    (canonical && step.bytes().all(|b| b.is_ascii_digit())).then(|| step.parse().ok())?
}

fn unescape(step: &str) -> Result<String, PointerError> {
    let mut parts = step.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(1).ok_or(PointerError::Escape)?;
        plain.push(match code {
            "0" => '~',
            "1" => '/',
            _ => return Err(PointerError::Escape),
        });
        plain.push_str(rest);
    }
    Ok(plain)
}

/// Why a pointer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PointerError {
    /// It does not start with a slash.
    #[error("a JSON pointer starts with '/', as in \"/order/id\"")]
    NoSlash,
    /// A tilde is not followed by 0 or 1.
    #[error("in a JSON pointer '~' is written '~0' and '/' is '~1'")]
    Escape,
    /// It has this many steps, more than 32.
    #[error("the JSON pointer has {0} steps, at most {max} are allowed", max = MAX_STEPS)]
    TooDeep(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::parse(text).unwrap()
    }

    fn json(text: &'static str) -> Canonical<'static> {
        Canonical::of(text.as_bytes())
    }

    #[test]
    fn it_finds_what_is_there() {
        let text = json(r#"{"a": [10, {"b/c": 9007199254740993}], "m~n": "x", "": 0}"#);
        assert_eq!(pointer("/a/0").find(&text), Some("10"));
        assert_eq!(pointer("/a/1/b~1c").find(&text), Some("9007199254740993"));
        assert_eq!(pointer("/m~0n").find(&text), Some("\"x\""));
        assert_eq!(pointer("/").find(&text), Some("0"));
        for missing in ["/a/2", "/a/01", "/a/-", "/z", "/a/0/x"] {
            assert_eq!(pointer(missing).find(&text), None, "{missing}");
        }
        assert_eq!(pointer("/a").find(&json("not json")), None);
    }

    #[test]
    fn ignored_places_do_not_count_and_others_do() {
        let ignore = [pointer("/at"), pointer("/in/1"), pointer("/deep/er"), pointer("/none")];
        let a = json(r#"{"at": 1, "in": [1, 2], "deep": {"er": 1, "x": 1}}"#).without(&ignore);
        let b = json(r#"{"in": [1, 9], "deep": {"x": 1, "er": [2]}, "at": 2}"#).without(&ignore);
        assert_eq!(a, b);
        assert_eq!(a.as_bytes(), br#"{"deep":{"x":1},"in":[1]}"#);
        assert_eq!(json("plain").without(&ignore), json("plain"));
    }

    #[test]
    fn only_chosen_places_count() {
        let only = [pointer("/amount"), pointer("/to/id")];
        let a = json(r#"{"amount": 5.0, "to": {"id": "b", "at": 1}, "x": 1}"#).only(&only);
        assert_eq!(a.as_bytes(), br#"{"/amount":5,"/to/id":"b"}"#);
        assert_eq!(json("[]").only(&only).as_bytes(), b"{}");
    }

    #[test]
    fn wrong_pointers_are_refused() {
        assert_eq!(JsonPointer::parse("a"), Err(PointerError::NoSlash));
        assert_eq!(JsonPointer::parse(""), Err(PointerError::NoSlash));
        assert_eq!(JsonPointer::parse("/a~2"), Err(PointerError::Escape));
        assert_eq!(JsonPointer::parse("/a~"), Err(PointerError::Escape));
        assert_eq!(JsonPointer::parse(&"/a".repeat(33)), Err(PointerError::TooDeep(33)));
        assert_eq!(pointer("/a~1b/~0").to_string(), "/a~1b/~0");
    }
}
