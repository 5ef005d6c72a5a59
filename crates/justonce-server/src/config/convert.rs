//! From values of the tree to values of Rust.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use justonce::JsonPointer;

use super::complaint::{Complaint, Read, expected};
use super::nearest::did_you_mean;
use super::tree::{Node, Value};
use super::{units, words};

/// The most characters of a wrong value that are repeated.
const MAX_REPEATED_CHARS: usize = 60;

/// A text.
pub(super) fn text(node: &Node) -> Read<&str> {
    match &node.value {
        Value::Text(text) | Value::Loose(text) => Ok(text),
        _ => Err(expected(node, "a text in quotes")),
    }
}

/// A text that is not empty.
pub(super) fn full_text(node: &Node) -> Read<String> {
    match text(node)?.trim() {
        "" => Err(Complaint::about(node, "expected a text, found an empty one")),
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

/// `true` or `false`.
pub(super) fn boolean(node: &Node) -> Read<bool> {
    match &node.value {
        Value::Boolean(flag) => Ok(*flag),
        Value::Loose(text) if text == "true" => Ok(true),
        Value::Loose(text) if text == "false" => Ok(false),
        Value::Loose(text) => {
            Err(Complaint::about(node, format!("expected true or false, found {}", repeated(text))))
        }
        _ => Err(expected(node, "true or false")),
    }
}

/// A whole number within a range.
pub(super) fn number(range: RangeInclusive<usize>) -> impl Fn(&Node) -> Read<usize> {
    move |node| {
        let number = match &node.value {
            Value::Integer(number) => Some(*number),
            Value::Loose(text) => text.trim().parse().ok(),
            _ => return Err(expected(node, "a whole number")),
        };
        let fits = number.and_then(|number| usize::try_from(number).ok());
        fits.filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Complaint::about(node, format!("expected a whole number from {least} to {most}"))
        })
    }
}

/// A part of the whole: more than 0, at most 1.
pub(super) fn ratio(node: &Node) -> Read<f64> {
    let number = match &node.value {
        Value::Float(number) => Some(*number),
        Value::Integer(1) => Some(1.0),
        Value::Integer(_) => None,
        Value::Loose(text) => text.trim().parse().ok(),
        _ => return Err(expected(node, "a number")),
    };
    number
        .filter(|number| *number > 0.0 && *number <= 1.0)
        .ok_or_else(|| Complaint::about(node, "expected a number above 0, at most 1, as in 0.5"))
}

/// The longest timeout: a week is longer than anybody waits, and far from any overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);
const LEAST: Duration = Duration::from_millis(1);

/// A duration within a range.
pub(super) fn time(range: RangeInclusive<Duration>) -> impl Fn(&Node) -> Read<Duration> {
    move |node| match &node.value {
        Value::Text(text) | Value::Loose(text) => time_in(text, &range, node),
        Value::Integer(number) => Err(Complaint::about(node, "a duration needs a unit")
            .help(format!("did you mean \"{number}s\"?"))),
        _ => Err(expected(node, "a duration, as in \"30s\"")),
    }
}

/// A duration within a range, inside a longer text.
pub(super) fn time_in(text: &str, range: &RangeInclusive<Duration>, node: &Node) -> Read<Duration> {
    let found = |what: String| Complaint::about(node, format!("{what}, found {}", repeated(text)));
    let time = units::duration(text).map_err(found)?;
    if range.contains(&time) {
        return Ok(time);
    }
    let (least, most) = (words::duration(*range.start()), words::duration(*range.end()));
    Err(found(format!("expected {least} to {most}")))
}

/// A duration that may be none.
pub(super) fn duration(node: &Node) -> Read<Duration> {
    time(Duration::ZERO..=MAX_TIMEOUT)(node)
}

/// A duration of at least a millisecond.
pub(super) fn some_time(node: &Node) -> Read<Duration> {
    time(LEAST..=MAX_TIMEOUT)(node)
}

/// A size in bytes within a range.
pub(super) fn size(range: RangeInclusive<usize>) -> impl Fn(&Node) -> Read<usize> {
    move |node| {
        let bytes = match &node.value {
            Value::Integer(number) => usize::try_from(*number).ok(),
            Value::Text(text) | Value::Loose(text) => {
                let bytes = units::size(text).map_err(|why| {
                    Complaint::about(node, format!("{why}, found {}", repeated(text)))
                })?;
                usize::try_from(bytes).ok()
            }
            _ => return Err(expected(node, "a size, as in \"1MB\"")),
        };
        bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let (least, most) = (words::size(*least), words::size(*most));
            Complaint::about(node, format!("expected {least} to {most}"))
        })
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&Node) -> Read<T> {
    move |node| {
        let word = text(node)?;
        let found = words.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names = || words.iter().map(|(name, _)| *name);
            let quoted: Vec<_> = names().map(|name| format!("\"{name}\"")).collect();
            let message = format!("expected {}, found {}", quoted.join(" or "), repeated(word));
            Complaint::about(node, message).help(did_you_mean(word, names()))
        })
    }
}

/// A list. From a variable or a flag it is separated by commas.
pub(super) fn list<T>(item: impl Fn(&Node) -> Read<T>) -> impl Fn(&Node) -> Read<Vec<T>> {
    move |node| match &node.value {
        Value::List(items) => each(items.iter().map(&item)),
        Value::Loose(text) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            let nodes = parts.map(|part| Node {
                origin: node.origin.clone(),
                value: Value::Loose(part.to_owned()),
            });
            each(nodes.map(|node| item(&node)))
        }
        _ => Err(expected(node, "a list, as in [\"…\"]")),
    }
}

/// All items, or all that is wrong with them.
fn each<T>(read: impl Iterator<Item = Read<T>>) -> Read<Vec<T>> {
    let (mut items, mut wrong) = (Vec::new(), Vec::new());
    for one in read {
        match one {
            Ok(item) => items.push(item),
            Err(complaint) => wrong.push(complaint),
        }
    }
    Complaint::all(wrong).map_or(Ok(items), Err)
}

/// A list, or one of what would be in it.
pub(super) fn one_or_more<T>(item: impl Fn(&Node) -> Read<T>) -> impl Fn(&Node) -> Read<Vec<T>> {
    move |node| match &node.value {
        Value::List(_) | Value::Loose(_) => list(&item)(node),
        _ => item(node).map(|one| vec![one]),
    }
}

/// The name of a header.
pub(super) fn header(node: &Node) -> Read<HeaderName> {
    header_in(text(node)?, node)
}

/// The name of a header inside a longer text.
pub(super) fn header_in(name: &str, node: &Node) -> Read<HeaderName> {
    HeaderName::try_from(name)
        .map_err(|_| Complaint::about(node, format!("{} is no name of a header", repeated(name))))
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
        Complaint::about(node, message).help(slash)
    })
}
