//! Just enough Markdown for our checks: which lines are inside a fenced code block.

/// One line of a Markdown text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The line's number, from 1.
    pub(crate) number: usize,
    /// The line without its end.
    pub(crate) text: &'a str,
    /// Whether the line is prose, code in a fenced block, or a fence itself.
    pub(crate) kind: Kind,
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prose,
    Code,
    Fence,
}

/// The lines of a text, each with its kind.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut open: Option<(char, usize)> = None;
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let kind = match (open, fence(text)) {
            (None, None) => Kind::Prose,
            (None, Some((mark, length, _))) => {
                open = Some((mark, length));
                Kind::Fence
            }
            // A block ends with the mark it began with, at least as long, and nothing after it.
            (Some((begun, least)), Some((mark, length, "")))
                if mark == begun && length >= least =>
            {
                open = None;
                Kind::Fence
            }
            (Some(_), _) => Kind::Code,
        };
        lines.push(Line { number: index + 1, text, kind });
    }
    lines
}

/// A fence's mark, its length and what follows, if the line is a fence.
fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    // A line such as ```` ```code``` ```` is inline code, not a fence.
    (length >= 3 && !(mark == '`' && rest.contains('`'))).then_some((mark, length, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        lines(text).iter().map(|line| line.kind).collect()
    }

    #[test]
    fn fences_open_and_close() {
        use Kind::{Code, Fence, Prose};
        assert_eq!(kinds("a\n```sh\nb\n```\nc"), [Prose, Fence, Code, Fence, Prose]);
    }

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        use Kind::{Code, Fence, Prose};
        assert_eq!(kinds("````\n```\n~~~\n````\nc"), [Fence, Code, Code, Fence, Prose]);
    }

    #[test]
    fn inline_code_of_three_marks_is_no_fence() {
        assert_eq!(kinds("```a``` b"), [Kind::Prose]);
    }
}
