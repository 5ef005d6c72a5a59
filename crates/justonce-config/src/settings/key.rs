//! `key…`: where keys come from and how they are checked.

use http::HeaderName;
use justonce_core::MAX_KEY_BYTES;
use justonce_http::{KeySource, KeySyntax};

use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{choice, custom, header_in, number, pointer_in, repeated, text};
use crate::nearest::did_you_mean;
use crate::report::Report;
use crate::section::{Sourced, first_set};
use crate::tree::Node;

const STANDARD: HeaderName = HeaderName::from_static("idempotency-key");
/// The most a compiled regex may take, in bytes: every request pays for it.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

settings! {
    /// What one source says about keys.
    layer KeyLayer, check check, inherit inherit {
        /// `required` or `optional`: the header `Idempotency-Key`; `header:NAME`, `json:/POINTER`,
        /// `query:NAME`: somewhere else; `content`: the request itself; `off`: not protected.
        key: KeyWord = custom(key_word), default "optional", example "json:/order/id";
        /// `required` or `optional`, for keys that are somewhere else; without it, required.
        key_presence: bool = choice(&[("required", true), ("optional", false)]),
            example "optional";
        /// `strict`: only RFC 9651 strings, in quotes.
        key_syntax: KeySyntax =
            choice(&[("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)]),
            default "lenient", example "strict";
        /// The fewest characters of a key.
        key_min: usize = number(1..=MAX_KEY_BYTES), default "1", example "16";
        /// The most characters of a key.
        key_max: usize = number(1..=MAX_KEY_BYTES), default "255", example "64";
        /// `any`, `uuid`, or `regex:…` that the whole key must match.
        key_format: KeyFormat = custom(format), default "any", example "regex:ord_[0-9a-z]+";
    }
}

/// What `key` says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeyWord {
    /// Not protected.
    Off,
    /// The standard header, required or not.
    Standard { required: bool },
    /// Somewhere else.
    Source(KeySource),
}

/// Where keys come from and how they are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// Where they come from.
    pub source: KeySource,
    /// Whether a request without one is refused.
    pub required: bool,
    /// How they are written in headers.
    pub syntax: KeySyntax,
    /// The fewest characters.
    pub min: usize,
    /// The most characters.
    pub max: usize,
    /// What they must look like.
    pub format: KeyFormat,
}

/// What a key must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// Anything printable.
    Any,
    /// A UUID.
    Uuid,
    /// The whole key must match this. It compiles, also between `^(?:` and `)$`.
    Regex(String),
}

/// What cannot be said together in one table.
fn check(layer: &KeyLayer, report: &mut Report) {
    let Some(key) = &layer.key else { return };
    let place = report.name_of(&key.origin);
    if let Some(presence) = &layer.key_presence {
        let why = match &key.value {
            KeyWord::Standard { required } if *required != presence.value => {
                Some("says the opposite")
            }
            KeyWord::Off => Some("switches keys off"),
            KeyWord::Source(KeySource::Content) => Some("takes the content, which is there"),
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("`key_presence` contradicts `key` ({place}), which {why}");
            report.at(&presence.origin, message, None);
        }
    }
    let in_header = match &key.value {
        KeyWord::Standard { .. } => true,
        KeyWord::Source(source) => matches!(source, KeySource::Header(_)),
        KeyWord::Off => false,
    };
    if let (false, Some(syntax)) = (in_header, &layer.key_syntax) {
        let message = format!("`key_syntax` is about headers, and `key` ({place}) is in no header");
        report.at(&syntax.origin, message, None);
    }
}

/// A route that says what its key is leaves behind what was said of another key.
fn inherit(own: KeyLayer, mut below: KeyLayer) -> (KeyLayer, KeyLayer) {
    if !matches!(&own.key, None | Some(Sourced { value: KeyWord::Source(_), .. })) {
        below.key_presence = None;
    }
    (own, below)
}

/// The keys of a route; nothing if it is not protected.
pub(super) fn resolve(layer: KeyLayer, report: &mut Report) -> Option<KeySettings> {
    let presence = layer.key_presence.map(|set| set.value);
    let (source, required) = match layer.key?.value {
        KeyWord::Off => return None,
        KeyWord::Standard { required } => {
            (KeySource::Header(STANDARD), presence.unwrap_or(required))
        }
        KeyWord::Source(KeySource::Content) => (KeySource::Content, true),
        KeyWord::Source(source) => (source, presence.unwrap_or(true)),
    };
    let (min, max) = (layer.key_min?, layer.key_max?);
    if min.value > max.value {
        let message = format!("`key_min` is {}, and `key_max` only {}", min.value, max.value);
        report.at(&first_set([&min.origin, &max.origin]), message, None);
    }
    Some(KeySettings {
        source,
        required,
        syntax: layer.key_syntax?.value,
        min: min.value,
        max: max.value,
        format: layer.key_format?.value,
    })
}

fn key_word(node: &Node) -> Read<KeyWord> {
    let text = text(node)?.trim();
    let word = match text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest))) {
        ("required", None) => KeyWord::Standard { required: true },
        ("optional", None) => KeyWord::Standard { required: false },
        ("off", None) => KeyWord::Off,
        ("content", None) => KeyWord::Source(KeySource::Content),
        ("header", Some(name)) => KeyWord::Source(KeySource::Header(header_in(name.trim(), node)?)),
        ("json", Some(place)) => KeyWord::Source(KeySource::Json(pointer_in(place.trim(), node)?)),
        ("query", Some(name)) if !name.trim().is_empty() => {
            KeyWord::Source(KeySource::Query(name.trim().into()))
        }
        (kind, _) => {
            let what = "\"required\", \"optional\", \"off\", \"content\", \"header:Name\", \
                        \"json:/pointer\" or \"query:name\"";
            let message = format!("expected {what}, found {}", repeated(text));
            let words = ["required", "optional", "off", "content", "header:", "json:", "query:"];
            let near = did_you_mean(kind, words.into_iter().filter(|word| *word != kind));
            return Err(Invalid::at(node, message).help(near));
        }
    };
    Ok(word)
}

fn format(node: &Node) -> Read<KeyFormat> {
    let text = text(node)?;
    match text.split_once(':') {
        None if text == "any" => Ok(KeyFormat::Any),
        None if text == "uuid" => Ok(KeyFormat::Uuid),
        Some(("regex", regex)) => regex_of(regex, node),
        _ => {
            let what = "\"any\", \"uuid\" or \"regex:…\"";
            let message = format!("expected {what}, found {}", repeated(text));
            Err(Invalid::at(node, message).help(did_you_mean(text, ["any", "uuid", "regex:"])))
        }
    }
}

fn regex_of(text: &str, node: &Node) -> Read<KeyFormat> {
    // Both must compile: `a)(b` would become something else between the brackets.
    for regex in [text.to_owned(), format!("^(?:{text})$")] {
        let compiled = regex::RegexBuilder::new(&regex).size_limit(MAX_REGEX_BYTES).build();
        if let Err(error) = compiled {
            let why = error.to_string();
            // The last line says what is wrong; those before draw a picture of the regex.
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            return Err(Invalid::at(node, format!("the regex does not compile: {why}")));
        }
    }
    Ok(KeyFormat::Regex(text.to_owned()))
}
