//! Texts with facts about an operation in them.

use std::fmt;

/// A fact about an operation that a probe can name.
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
    /// What is wrong with it, in words: a brace without its partner, or an unknown fact.
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
