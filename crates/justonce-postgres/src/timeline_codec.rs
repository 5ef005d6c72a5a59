//! Lines of the timeline: a moment, a fence, the kind of note, and words. In words, blanks and
//! characters that text in PostgreSQL cannot have are escaped.

use justonce_core::codec::{note_kind, note_words, unescape};
use justonce_core::{Fence, Note, NoteKind, Timestamp};

/// One word, escaped.
pub(crate) fn escaped(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    for c in word.chars() {
        if c == '%' || c == ' ' || c.is_control() {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                text.push_str(&format!("%{byte:02X}"));
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// The words of a note, escaped, a blank between them.
pub(crate) fn words_of(kind: &NoteKind) -> String {
    let (_, words) = note_words(kind);
    words.into_iter().map(escaped).collect::<Vec<_>>().join(" ")
}

/// Reads a line; `None` if this release does not know it.
pub(crate) fn note(line: &str) -> Option<Note> {
    let mut parts = line.split(' ');
    let at = Timestamp::from_millis(parts.next()?.parse().ok()?);
    let fence = Fence::new(parts.next()?.parse().ok()?);
    let name = parts.next()?;
    let words = parts.map(unescape).collect::<Option<Vec<String>>>()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(Note { at, fence, kind: note_kind(name, &words)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use justonce_core::{HowResolved, Owner, Resolver, Why};

    #[test]
    fn every_line_reads_back() {
        for kind in [
            NoteKind::Claimed(Owner::new("")),
            NoteKind::TakenOver(Owner::new("gateway 1 % \u{1f980}")),
            NoteKind::Checkpointed("\u{0} \n%41".into()),
            NoteKind::Completed,
            NoteKind::Resolved(
                Resolver::operator("ada l."),
                HowResolved::Failed,
                Why::new("the bank says so"),
            ),
        ] {
            let expected = Note { at: Timestamp::from_millis(17), fence: Fence::new(4), kind };
            let (name, words) = note_words(&expected.kind);
            let tail = words_of(&expected.kind);
            let line = match words.is_empty() {
                true => format!("17 4 {name}"),
                false => format!("17 4 {name} {tail}"),
            };
            assert!(!line.contains('\0'), "{line:?}");
            assert_eq!(note(&line), Some(expected), "{line:?}");
        }
        for damaged in ["", "17", "17 4", "17 4 held", "x 4 completed", "17 4 claimed %4"] {
            assert_eq!(note(damaged), None, "{damaged:?}");
        }
    }
}
