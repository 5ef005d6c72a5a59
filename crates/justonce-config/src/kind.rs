//! Kinds of values: how each is read, what its limits are, and how JSON Schema describes it.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use justonce_core::JsonPointer;
use serde_json::{Value as Json, json};

use super::invalid::{Invalid, Read};
use super::nearest::did_you_mean;
use super::tree::{Node, Value};
use super::{units, words};

/// The most characters of a wrong value that are repeated.
const MAX_REPEATED_CHARS: usize = 60;
const LEAST: Duration = Duration::from_millis(1);
/// The longest timeout: far beyond any use, and far from any overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

type Reader<T> = dyn Fn(&Node) -> Read<T>;

/// A kind of values.
pub(super) struct Kind<T> {
    read: Box<Reader<T>>,
    schema: Box<dyn Fn() -> Json>,
    pub(super) absent: Option<T>,
}

impl<T> Kind<T> {
    /// A kind by what an editor should accept, and by how it is read.
    pub(super) fn new(
        schema: impl Fn() -> Json + 'static,
        read: impl Fn(&Node) -> Read<T> + 'static,
    ) -> Self {
        Self { read: Box::new(read), schema: Box::new(schema), absent: None }
    }

    /// With what holds where nothing is set and there is no default.
    pub(super) fn otherwise(self, absent: T) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// Reads a value, or says what is wrong with it.
    pub(super) fn read(&self, node: &Node) -> Read<T> {
        (self.read)(node)
    }

    /// What an editor should accept.
    pub(super) fn schema(&self) -> Json {
        (self.schema)()
    }
}

/// A text with a language of its own.
pub(super) fn custom<T: 'static>(read: fn(&Node) -> Read<T>) -> Kind<T> {
    Kind::new(|| json!({ "type": "string" }), read)
}

/// A list of texts. In a variable or a flag it is separated by commas.
pub(super) fn list<T: 'static>(item: fn(&Node) -> Read<T>) -> Kind<Vec<T>> {
    let schema = || json!({ "type": "array", "items": { "type": "string" } });
    Kind::new(schema, move |node| items(node, item))
}

/// A list of texts, or one of them.
pub(super) fn one_or_more<T: 'static>(item: fn(&Node) -> Read<T>) -> Kind<Vec<T>> {
    let schema = || json!({ "type": ["string", "array"], "items": { "type": "string" } });
    Kind::new(schema, move |node| match &node.value {
        Value::List(_) | Value::Loose(_) => items(node, item),
        _ => item(node).map(|one| vec![one]),
    })
}

/// All items, or all that is wrong with them.
fn items<T>(node: &Node, item: fn(&Node) -> Read<T>) -> Read<Vec<T>> {
    let read: Vec<Read<T>> = match &node.value {
        Value::List(items) => items.iter().map(item).collect(),
        Value::Loose(text) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            let origin = || node.origin.clone();
            parts.map(|part| item(&Node::loose(part, origin()))).collect()
        }
        _ => return Err(Invalid::expected(node, "a list, as in [\"…\"]")),
    };
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for item in read {
        match item {
            Ok(item) => right.push(item),
            Err(invalid) => wrong.push(invalid),
        }
    }
    Invalid::all(wrong).map_or(Ok(right), Err)
}

/// A value that may be left out without a default.
pub(super) fn optional<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let Kind { read, schema, .. } = kind;
    Kind::new(schema, move |node| read(node).map(Some)).otherwise(None)
}

/// One of a few words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let names = || words.iter().map(|(name, _)| *name);
    Kind::new(
        move || json!({ "enum": names().collect::<Vec<_>>() }),
        move |node| {
            let word = text(node)?;
            let found = words.iter().find(|(name, _)| *name == word);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let valid: Vec<_> = names().map(|name| format!("\"{name}\"")).collect();
                let message = format!("expected {}, found {}", valid.join(" or "), repeated(word));
                Invalid::at(node, message).help(did_you_mean(word, names()))
            })
        },
    )
}

/// `true` or `false`.
pub(super) fn flag() -> Kind<bool> {
    Kind::new(
        || json!({ "type": "boolean" }),
        |node| match &node.value {
            Value::Boolean(flag) => Ok(*flag),
            Value::Loose(text) => text.parse().map_err(|_| {
                Invalid::at(node, format!("expected true or false, found {}", repeated(text)))
            }),
            _ => Err(Invalid::expected(node, "true or false")),
        },
    )
}

/// A whole number within a range.
pub(super) fn number<N>(range: RangeInclusive<N>) -> Kind<N>
where
    N: Copy + Display + PartialOrd + TryFrom<i128> + Into<Json> + 'static,
{
    let (least, most) = range.into_inner();
    let schema = move || -> Json {
        let (least, most): (Json, Json) = (least.into(), most.into());
        json!({ "type": "integer", "minimum": least, "maximum": most })
    };
    Kind::new(schema, move |node| {
        let number: Option<i128> = match &node.value {
            Value::Integer(number) => Some(*number),
            Value::Loose(text) => text.trim().parse().ok(),
            _ => return Err(Invalid::expected(node, "a whole number")),
        };
        let fits = number.and_then(|number| N::try_from(number).ok());
        fits.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            Invalid::at(node, format!("expected a whole number from {least} to {most}"))
        })
    })
}

/// A part of the whole: more than 0, at most 1.
pub(super) fn ratio() -> Kind<f64> {
    let schema = || json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
    Kind::new(schema, |node| {
        let number = match &node.value {
            Value::Float(number) => Some(*number),
            Value::Integer(1) => Some(1.0),
            Value::Integer(_) => None,
            Value::Loose(text) => text.trim().parse().ok(),
            _ => return Err(Invalid::expected(node, "a number")),
        };
        number
            .filter(|number| *number > 0.0 && *number <= 1.0)
            .ok_or_else(|| Invalid::at(node, "expected a number above 0, at most 1, as in 0.5"))
    })
}

/// A timeout of at least a millisecond.
pub(super) fn timeout() -> Kind<Duration> {
    time(LEAST..=MAX_TIMEOUT)
}

/// A timeout that may be zero.
pub(super) fn timeout_or_zero() -> Kind<Duration> {
    time(Duration::ZERO..=MAX_TIMEOUT)
}

/// A duration within a range.
pub(super) fn time(range: RangeInclusive<Duration>) -> Kind<Duration> {
    let schema = || json!({ "type": "string", "pattern": "^[\\s0-9a-zA-Zµ]+$" });
    Kind::new(schema, move |node| match &node.value {
        Value::Text(text) | Value::Loose(text) => time_in(text, &range, node),
        Value::Integer(number) => Err(Invalid::at(node, "a duration needs a unit")
            .help(format!("did you mean \"{number}s\"?"))),
        _ => Err(Invalid::expected(node, "a duration, as in \"30s\"")),
    })
}

/// A size in bytes within a range.
pub(super) fn size(range: RangeInclusive<usize>) -> Kind<usize> {
    let (least, most) = range.into_inner();
    let schema = move || {
        let pattern = "^\\s*[0-9]+\\s*[a-zA-Z]*\\s*$";
        let types = ["string", "integer"];
        json!({ "type": types, "pattern": pattern, "minimum": least, "maximum": most })
    };
    Kind::new(schema, move |node| {
        let bytes = match &node.value {
            Value::Integer(number) => usize::try_from(*number).ok(),
            Value::Text(text) | Value::Loose(text) => {
                let bytes = units::size(text)
                    .map_err(|why| Invalid::at(node, format!("{why}, found {}", repeated(text))))?;
                usize::try_from(bytes).ok()
            }
            _ => return Err(Invalid::expected(node, "a size, as in \"1MB\"")),
        };
        bytes.filter(|bytes| (least..=most).contains(bytes)).ok_or_else(|| {
            let (least, most) = (words::size(least), words::size(most));
            Invalid::at(node, format!("expected {least} to {most}"))
        })
    })
}

/// A text.
pub(super) fn text(node: &Node) -> Read<&str> {
    match &node.value {
        Value::Text(text) | Value::Loose(text) => Ok(text),
        _ => Err(Invalid::expected(node, "a text in quotes")),
    }
}

/// A text that is not empty.
pub(super) fn full_text(node: &Node) -> Read<String> {
    match text(node)?.trim() {
        "" => Err(Invalid::at(node, "expected a text, found an empty one")),
        full => Ok(full.to_owned()),
    }
}

/// The path of a file or directory.
pub(super) fn path(node: &Node) -> Read<PathBuf> {
    full_text(node).map(PathBuf::from)
}

/// How a wrong text is repeated: short and harmless.
pub(super) fn repeated(text: &str) -> String {
    let short: String = text.chars().take(MAX_REPEATED_CHARS).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{dots}")
}

/// A duration within a range, inside a longer text.
pub(super) fn time_in(text: &str, range: &RangeInclusive<Duration>, node: &Node) -> Read<Duration> {
    let found = |what: String| Invalid::at(node, format!("{what}, found {}", repeated(text)));
    let time = units::duration(text).map_err(found)?;
    if range.contains(&time) {
        return Ok(time);
    }
    let (least, most) = (words::duration(*range.start()), words::duration(*range.end()));
    Err(found(format!("expected {least} to {most}")))
}

/// The name of a header.
pub(super) fn header(node: &Node) -> Read<HeaderName> {
    header_in(text(node)?, node)
}

/// The name of a header inside a longer text.
pub(super) fn header_in(name: &str, node: &Node) -> Read<HeaderName> {
    HeaderName::try_from(name)
        .map_err(|_| Invalid::at(node, format!("{} is no name of a header", repeated(name))))
}

/// A JSON pointer.
pub(super) fn pointer(node: &Node) -> Read<JsonPointer> {
    pointer_in(text(node)?, node)
}

/// A JSON pointer inside a longer text.
pub(super) fn pointer_in(text: &str, node: &Node) -> Read<JsonPointer> {
    JsonPointer::parse(text).map_err(|why| {
        let message = format!("{} is no JSON pointer: {why}", repeated(text));
        let slash = (!text.starts_with('/')).then(|| format!("did you mean \"/{text}\"?"));
        Invalid::at(node, message).help(slash)
    })
}
