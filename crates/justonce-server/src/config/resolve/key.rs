//! Where keys come from and how they are checked.

use http::HeaderName;
use justonce::MAX_KEY_BYTES;

use super::layer::Layer;
use crate::config::complaint::{Complaint, Read};
use crate::config::convert::{choice, header_in, number, pointer_in, repeated, text};
use crate::config::nearest::did_you_mean;
use crate::config::report::Report;
use crate::config::section::{Section, Set};
use crate::config::settings::{KeyFormat, KeySettings, KeySource, KeySyntax};
use crate::config::tree::Node;

const STANDARD: HeaderName = HeaderName::from_static("idempotency-key");
/// The most a compiled regex may take, in bytes: every request pays for it.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// What `key` says.
#[derive(Clone, Debug)]
pub(super) enum KeyWord {
    /// Not protected.
    Off,
    /// The standard header, required or not.
    Standard { required: bool },
    /// Somewhere else.
    Source(KeySource),
}

/// What a table says about keys.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyLayer {
    pub(super) key: Option<Set<KeyWord>>,
    pub(super) presence: Option<Set<bool>>,
    pub(super) syntax: Option<Set<KeySyntax>>,
    pub(super) min: Option<Set<usize>>,
    pub(super) max: Option<Set<usize>>,
    pub(super) format: Option<Set<KeyFormat>>,
}

const PRESENCES: &[(&str, bool)] = &[("required", true), ("optional", false)];
const SYNTAXES: &[(&str, KeySyntax)] =
    &[("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)];

impl KeyLayer {
    /// Reads what a table says about keys.
    pub(super) fn read(section: &Section<'_>, report: &mut Report) -> Self {
        let layer = Self {
            key: section.get("key", report, key_word),
            presence: section.get("key_presence", report, choice(PRESENCES)),
            syntax: section.get("key_syntax", report, choice(SYNTAXES)),
            min: section.get("key_min", report, number(1..=MAX_KEY_BYTES)),
            max: section.get("key_max", report, number(1..=MAX_KEY_BYTES)),
            format: section.get("key_format", report, format),
        };
        layer.check(report);
        layer
    }

    /// What cannot be said together in one table.
    fn check(&self, report: &mut Report) {
        let Some(key) = &self.key else { return };
        let place = report.name_of(&key.origin);
        if let Some(presence) = &self.presence {
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
        if let (false, Some(syntax)) = (in_header, &self.syntax) {
            let message =
                format!("`key_syntax` is about headers, and `key` ({place}) is in no header");
            report.at(&syntax.origin, message, None);
        }
    }

    /// Lays this over what holds for all routes.
    pub(super) fn over(self, below: &Self) -> Self {
        // A route that says what its key is leaves behind what was said of another key.
        let below_presence = match &self.key {
            None | Some(Set { value: KeyWord::Source(_), .. }) => below.presence.clone(),
            Some(_) => None,
        };
        Self {
            key: self.key.or_else(|| below.key.clone()),
            presence: self.presence.or(below_presence),
            syntax: self.syntax.or_else(|| below.syntax.clone()),
            min: self.min.or_else(|| below.min.clone()),
            max: self.max.or_else(|| below.max.clone()),
            format: self.format.or_else(|| below.format.clone()),
        }
    }
}

/// The keys of a route.
pub(super) fn resolve(layer: &Layer, report: &mut Report) -> Option<KeySettings> {
    let said = &layer.key;
    let presence = said.presence.as_ref().map(|set| set.value);
    let (source, required) = match said.key.as_ref().map(|set| &set.value) {
        None => (KeySource::Header(STANDARD), presence.unwrap_or(false)),
        Some(KeyWord::Off) => return None,
        Some(KeyWord::Standard { required }) => {
            (KeySource::Header(STANDARD), presence.unwrap_or(*required))
        }
        Some(KeyWord::Source(KeySource::Content)) => (KeySource::Content, true),
        Some(KeyWord::Source(source)) => (source.clone(), presence.unwrap_or(true)),
    };
    let min = said.min.as_ref().map_or(1, |set| set.value);
    let max = said.max.as_ref().map_or(MAX_KEY_BYTES, |set| set.value);
    if let (true, Some(origin)) =
        (min > max, said.min.as_ref().or(said.max.as_ref()).map(|set| &set.origin))
    {
        report.at(origin, format!("`key_min` is {min}, and `key_max` only {max}"), None);
    }
    Some(KeySettings {
        source,
        required,
        syntax: said.syntax.as_ref().map_or(KeySyntax::Lenient, |set| set.value),
        min,
        max,
        format: said.format.as_ref().map_or(KeyFormat::Any, |set| set.value.clone()),
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
            KeyWord::Source(KeySource::Query(name.trim().to_owned()))
        }
        (kind, _) => {
            let what = "\"required\", \"optional\", \"off\", \"content\", \"header:Name\", \
                        \"json:/pointer\" or \"query:name\"";
            let message = format!("expected {what}, found {}", repeated(text));
            let words = ["required", "optional", "off", "content", "header:", "json:", "query:"];
            let near = did_you_mean(kind, words.into_iter().filter(|word| *word != kind));
            return Err(Complaint::about(node, message).help(near));
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
            Err(Complaint::about(node, message).help(did_you_mean(text, ["any", "uuid", "regex:"])))
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
            return Err(Complaint::about(node, format!("the regex does not compile: {why}")));
        }
    }
    Ok(KeyFormat::Regex(text.to_owned()))
}
