//! What is kept of an entity, and the rules about it. Pure.

use justonce_core::{Checkpoint, Fingerprint, Outcome, codec};
use serde::{Deserialize, Serialize};

use super::error::GuardError;

/// The version in which it is written.
const FORMAT: u8 = 1;
/// The name of the checkpoint of a write that was accepted.
const ACCEPTED: &str = "accepted";
/// The name of the checkpoint of a write that took effect.
const DONE: &str = "done";

/// A write as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteRequest {
    /// Its version; zero where only the content counts.
    pub(super) version: u64,
    /// The digest of its content, or of its conditions.
    pub(super) content: [u8; 32],
}

impl WriteRequest {
    pub(super) const fn new(version: u64, content: Fingerprint) -> Self {
        Self { version, content: *content.digest() }
    }
}

/// The last write that was accepted for an entity.
///
/// It is saved before the write is executed, so that from then on nothing older gets in, and again
/// with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastWrite {
    /// What was asked.
    pub(super) asked: WriteRequest,
    /// Its outcome; nothing while it is not known whether it took effect.
    pub(super) outcome: Option<Outcome>,
}

/// What is to be done with a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is executed.
    Execute,
    /// It was executed before; this is its outcome.
    Before(Outcome),
    /// A newer one was accepted.
    Late,
    /// The same version was accepted with another content.
    Conflict,
}

/// The rule about versions: the newest counts.
pub(super) fn judge_newest(kept: Option<&LastWrite>, asked: &WriteRequest) -> Judgement {
    let Some(kept) = kept else { return Judgement::Execute };
    if asked.version > kept.asked.version {
        return Judgement::Execute;
    }
    if asked.version < kept.asked.version {
        return Judgement::Late;
    }
    match (&kept.outcome, asked.content == kept.asked.content) {
        (_, false) => Judgement::Conflict,
        (Some(outcome), true) => Judgement::Before(outcome.clone()),
        // It was accepted, and it is not known whether it took effect: its retry is executed.
        (None, true) => Judgement::Execute,
    }
}

/// The rule about conditions: only what has changed since the last time is executed.
pub(super) fn judge_changed(kept: Option<&LastWrite>, asked: &WriteRequest) -> Judgement {
    match kept {
        Some(LastWrite { asked: last, outcome: Some(outcome) })
            if last.content == asked.content =>
        {
            Judgement::Before(outcome.clone())
        }
        _ => Judgement::Execute,
    }
}

#[derive(Serialize, Deserialize)]
struct Written<'a> {
    format: u8,
    version: u64,
    content: [u8; 32],
    #[serde(with = "serde_bytes", borrow)]
    outcome: Option<&'a [u8]>,
}

impl LastWrite {
    /// The checkpoint that holds it.
    pub(super) fn point(&self) -> Result<Checkpoint, GuardError> {
        let outcome = self.outcome.as_ref().map(codec::encode_outcome);
        let written = Written {
            format: FORMAT,
            version: self.asked.version,
            content: self.asked.content,
            outcome: outcome.as_deref(),
        };
        let data = postcard::to_stdvec(&written)
            .map_err(|error| GuardError::Unsavable(error.to_string()))?;
        let name = if self.outcome.is_some() { DONE } else { ACCEPTED };
        Checkpoint::new(name, data).map_err(|error| GuardError::Unsavable(error.to_string()))
    }

    /// Reads a checkpoint.
    pub(super) fn read(point: &Checkpoint) -> Result<Self, GuardError> {
        let unreadable = |why: String| GuardError::Unreadable(why);
        let written: Written<'_> =
            postcard::from_bytes(point.data()).map_err(|error| unreadable(error.to_string()))?;
        if written.format != FORMAT {
            let why = format!("it has format {}, and {FORMAT} is known", written.format);
            return Err(unreadable(why));
        }
        let outcome = written.outcome.map(codec::decode_outcome).transpose();
        Ok(Self {
            asked: WriteRequest { version: written.version, content: written.content },
            outcome: outcome.map_err(|damage| unreadable(format!("{damage:?}")))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(version: u64, content: u8) -> WriteRequest {
        WriteRequest { version, content: [content; 32] }
    }

    fn kept(version: u64, content: u8, done: bool) -> LastWrite {
        LastWrite { asked: asked(version, content), outcome: done.then(|| Outcome::bytes("done")) }
    }

    #[test]
    fn only_the_newest_version_is_executed() {
        let done = kept(5, 1, true);
        let before = Judgement::Before(Outcome::bytes("done"));
        assert_eq!(judge_newest(None, &asked(1, 1)), Judgement::Execute);
        assert_eq!(judge_newest(Some(&done), &asked(6, 1)), Judgement::Execute);
        assert_eq!(judge_newest(Some(&done), &asked(4, 1)), Judgement::Late);
        assert_eq!(judge_newest(Some(&done), &asked(5, 1)), before);
        assert_eq!(judge_newest(Some(&done), &asked(5, 2)), Judgement::Conflict);
    }

    #[test]
    fn what_was_only_accepted_keeps_older_ones_out_and_is_executed_again() {
        let accepted = kept(5, 1, false);
        assert_eq!(judge_newest(Some(&accepted), &asked(4, 1)), Judgement::Late);
        assert_eq!(judge_newest(Some(&accepted), &asked(5, 1)), Judgement::Execute);
        assert_eq!(judge_newest(Some(&accepted), &asked(5, 2)), Judgement::Conflict);
    }

    #[test]
    fn only_changed_conditions_are_executed() {
        let done = kept(0, 1, true);
        let before = Judgement::Before(Outcome::bytes("done"));
        assert_eq!(judge_changed(None, &asked(0, 1)), Judgement::Execute);
        assert_eq!(judge_changed(Some(&done), &asked(0, 1)), before);
        assert_eq!(judge_changed(Some(&done), &asked(0, 2)), Judgement::Execute);
        assert_eq!(judge_changed(Some(&kept(0, 1, false)), &asked(0, 1)), Judgement::Execute);
    }

    #[test]
    fn what_is_kept_is_read_back() {
        for kept in [kept(u64::MAX, 9, true), kept(0, 0, false)] {
            assert_eq!(LastWrite::read(&kept.point().unwrap()).unwrap(), kept);
        }
        let foreign = Checkpoint::new("asked", "{}").unwrap();
        assert!(matches!(LastWrite::read(&foreign), Err(GuardError::Unreadable(_))));
    }
}
