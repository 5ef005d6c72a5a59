//! What the worker has said: what it was about to try, and what the store had acknowledged.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, bail};

/// What a record is, as far as it matters here. Under way and unknown are the same: the lease of
/// whoever held the claim has lapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// There is no record.
    Absent,
    /// It was claimed, and nothing came of it yet. A fence that is not known is zero.
    Claimed {
        /// The fence.
        fence: u64,
        /// The checkpoint.
        checkpoint: Option<String>,
    },
    /// It is completed, with the outcome that belongs to the fence.
    Completed(u64),
    /// It failed, and may be tried again.
    Waiting(u64),
    /// It failed for good.
    Failed(u64),
    /// Late arrivals are refused.
    Tombstone,
}

/// A record, and the row that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The record.
    pub shape: Shape,
    /// The number in the row; nothing if there is no row.
    pub row: Option<u64>,
}

impl Seen {
    /// Nothing.
    pub const NOTHING: Self = Self { shape: Shape::Absent, row: None };
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Absent => write!(f, "absent 0 -")?,
            Shape::Claimed { fence, checkpoint } => {
                write!(f, "claimed {fence} {}", checkpoint.as_deref().unwrap_or("-"))?;
            }
            Shape::Completed(fence) => write!(f, "completed {fence} -")?,
            Shape::Waiting(fence) => write!(f, "waiting {fence} -")?,
            Shape::Failed(fence) => write!(f, "failed {fence} -")?,
            Shape::Tombstone => write!(f, "tombstone 0 -")?,
        }
        match self.row {
            Some(number) => write!(f, " {number}"),
            None => write!(f, " -"),
        }
    }
}

impl std::str::FromStr for Seen {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let &[name, fence, checkpoint, row] = words.as_slice() else { bail!("not four words") };
        let fence = fence.parse().context("no fence")?;
        let word = |word: &str| (word != "-").then(|| word.to_owned());
        let shape = match name {
            "absent" => Shape::Absent,
            "claimed" => Shape::Claimed { fence, checkpoint: word(checkpoint) },
            "completed" => Shape::Completed(fence),
            "waiting" => Shape::Waiting(fence),
            "failed" => Shape::Failed(fence),
            "tombstone" => Shape::Tombstone,
            other => bail!("no shape `{other}`"),
        };
        let row = word(row).map(|row| row.parse()).transpose().context("no row")?;
        Ok(Self { shape, row })
    }
}

/// What the worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is about to try.
    Trying,
    /// The store has acknowledged it, and promises that it is durable.
    Durable,
    /// The store has acknowledged it, and may forget it.
    Remembered,
}

impl Said {
    /// The letter of a line.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Trying => 'T',
            Self::Durable => 'D',
            Self::Remembered => 'R',
        }
    }
}

/// What is known of a key.
#[derive(Clone, Debug)]
pub struct Known {
    /// What was acknowledged last.
    pub sure: Seen,
    /// What may have come after it.
    pub maybe: Vec<Seen>,
}

impl Known {
    /// Whether this may be found.
    #[must_use]
    pub fn allows(&self, found: &Seen) -> bool {
        self.sure == *found || self.maybe.iter().any(|maybe| agrees(maybe, found))
    }
}

/// Whether what was found is what was tried, whose fence is perhaps not known.
fn agrees(tried: &Seen, found: &Seen) -> bool {
    match (&tried.shape, &found.shape) {
        (
            Shape::Claimed { fence: 0, checkpoint: tried_point },
            Shape::Claimed { checkpoint, .. },
        ) => tried_point == checkpoint && tried.row == found.row,
        _ => tried == found,
    }
}

/// Everything that was said until some point.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each key.
    pub keys: BTreeMap<String, Known>,
    /// The highest fence that was given.
    pub highest_fence: u64,
    /// How often something was acknowledged as durable.
    pub acknowledged: usize,
}

impl History {
    /// What is known of each key, as lines that say it again.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let mut lines = String::new();
        for (key, known) in &self.keys {
            lines.push_str(&format!("{} {key} {}\n", Said::Durable.letter(), known.sure));
            for maybe in &known.maybe {
                lines.push_str(&format!("{} {key} {maybe}\n", Said::Trying.letter()));
            }
        }
        lines
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// If it cannot be understood.
    pub fn add(&mut self, line: &str) -> Result<()> {
        let (letter, rest) = line.split_once(' ').context("no letter")?;
        let (key, seen) = rest.split_once(' ').context("no key")?;
        let seen: Seen = seen.parse()?;
        if let Shape::Claimed { fence, .. } = seen.shape {
            self.highest_fence = self.highest_fence.max(fence);
        }
        let known = self
            .keys
            .entry(key.to_owned())
            .or_insert_with(|| Known { sure: Seen::NOTHING, maybe: Vec::new() });
        match letter {
            "T" | "R" => known.maybe.push(seen),
            "D" => {
                known.maybe.clear();
                known.sure = seen;
                self.acknowledged += 1;
            }
            other => bail!("no letter `{other}`"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Seen {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_said_is_read_back() {
        for text in ["absent 0 - -", "claimed 7 half 3", "completed 9 - -", "tombstone 0 - -"] {
            assert_eq!(seen(text).to_string(), text);
        }
    }

    #[test]
    fn what_was_acknowledged_counts_until_more_is_tried() {
        let mut history = History::default();
        for line in ["T a claimed 0 - -", "D a claimed 7 - -", "T a completed 7 - 1"] {
            history.add(line).unwrap();
        }
        let known = &history.keys["a"];
        assert!(known.allows(&seen("claimed 7 - -")) && known.allows(&seen("completed 7 - 1")));
        // The row goes with the outcome, and the claim is another.
        for wrong in ["completed 7 - -", "claimed 7 - 1", "claimed 8 - -", "absent 0 - -"] {
            assert!(!known.allows(&seen(wrong)), "{wrong}");
        }
        history.add("D a completed 7 - 1").unwrap();
        assert!(!history.keys["a"].allows(&seen("claimed 7 - -")));
        assert_eq!((history.highest_fence, history.acknowledged), (7, 2));
    }
}
