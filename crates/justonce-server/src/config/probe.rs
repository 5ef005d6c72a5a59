//! How the service is asked what became of an unknown operation.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, Method};
use justonce::JsonPointer;

use super::settings::StatusSet;

/// How the service is asked what became of an unknown operation, and what its answers mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// How it is asked: GET or HEAD, which change nothing.
    pub method: Method,
    /// What it is asked: a path and perhaps a query.
    pub target: Template,
    /// What it is told besides, such as a credential of the gateway itself.
    pub headers: Vec<ProbeHeader>,
    /// Answers that say that it took effect.
    pub happened: Vec<ProbeRule>,
    /// Answers that say that it did not, and never will.
    pub did_not_happen: Vec<ProbeRule>,
    /// What is replayed of an operation that took effect.
    pub outcome: ProbeOutcome,
    /// The status that is replayed; nothing for the one of the answer.
    pub status: Option<u16>,
    /// Whether no two callers ever use the same key.
    pub unique_keys: bool,
    /// How long an operation must have been unknown before it is asked about.
    pub after: Duration,
    /// How long an operation must have been unknown before *did not happen* counts.
    pub release_after: Duration,
    /// The pause after the first unclear answer; it doubles with each.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many questions are under way at once.
    pub at_once: usize,
}

/// What is replayed of an operation that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The answer itself.
    Answer,
    /// The JSON at one place of the answer.
    Json(JsonPointer),
    /// A status without a body.
    Empty,
}

/// Which answers a rule is for: those with a status, and with all of these in their JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRule {
    /// The status.
    pub status: StatusSet,
    /// Places of the JSON body and what must be there.
    pub places: Vec<(JsonPointer, Wanted)>,
}

/// What must be at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Anything.
    Anything,
    /// This JSON, in its canonical form.
    Json(String),
    /// The text of one of the facts about the operation.
    Fact(Fact),
}

/// A fact about an operation that a question can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Its key.
    Key,
    /// The name of its record, which no other operation has.
    Record,
    /// The tenant it belongs to.
    Tenant,
    /// The fence of its last claim.
    Fence,
}

impl Fact {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Key, Self::Record, Self::Tenant, Self::Fence];

    /// Its name between braces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Record => "record",
            Self::Tenant => "tenant",
            Self::Fence => "fence",
        }
    }

    /// A fact by its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| fact.name() == name)
    }
}

/// A text with facts in it: `/payments?key={key}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Fact(Fact),
}

impl Template {
    /// Reads a text with facts in it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words: a brace without its partner, or a fact that nobody knows.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) =
                after.split_once('}').ok_or_else(|| "there is a `{` without its `}`".to_owned())?;
            let fact = Fact::parse(name).ok_or_else(|| {
                let names = Fact::ALL.map(|fact| format!("{{{}}}", fact.name())).join(", ");
                format!("`{{{name}}}` is unknown; there are {names}")
            })?;
            pieces.extend([Piece::Text(before.to_owned()), Piece::Fact(fact)]);
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        if pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('}'))) {
            return Err("there is a `}` without its `{`".to_owned());
        }
        Ok(Self { pieces })
    }

    /// Whether it names a fact.
    #[must_use]
    pub fn names(&self, fact: Fact) -> bool {
        self.pieces.contains(&Piece::Fact(fact))
    }

    /// The text with each fact in its place; nothing if one is not known.
    pub fn fill(&self, fact: impl Fn(Fact) -> Option<String>) -> Option<String> {
        self.pieces.iter().try_fold(String::new(), |text, piece| match piece {
            Piece::Text(more) => Some(text + more),
            Piece::Fact(name) => Some(text + &fact(*name)?),
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Fact(fact) => write!(f, "{{{}}}", fact.name()),
        })
    }
}

/// A header of a question. Its value is never shown: it may be a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Its name.
    pub name: HeaderName,
    /// Its value.
    pub value: Template,
}

impl fmt::Debug for ProbeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

impl ProbeSettings {
    /// Whether a question, or the rules for its answer, name a fact.
    #[must_use]
    pub fn names(&self, fact: Fact) -> bool {
        let mut rules = self.happened.iter().chain(&self.did_not_happen);
        let wants =
            |rule: &ProbeRule| rule.places.iter().any(|(_, wanted)| *wanted == Wanted::Fact(fact));
        self.target.names(fact)
            || self.headers.iter().any(|header| header.value.names(fact))
            || rules.any(wants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_put_in_their_places() {
        let template = Template::parse("/a/{key}?t={tenant}&k={key}").unwrap();
        let filled = template.fill(|fact| Some(fact.name().to_uppercase()));
        assert_eq!(filled.as_deref(), Some("/a/KEY?t=TENANT&k=KEY"));
        assert_eq!(template.to_string(), "/a/{key}?t={tenant}&k={key}");
        let unknown = template.fill(|fact| (fact == Fact::Key).then(String::new));
        assert_eq!(unknown, None, "half a question is none");
        for wrong in ["/{", "/{key", "/}", "/{Key}", "/{}", "/{{key}}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
