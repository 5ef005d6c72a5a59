//! The parts of Markdown files that tidy writes, between two comments.

use super::violation::Violation;

/// The comment that ends every generated part.
const END: &str = "<!-- tidy: end -->";

/// A generated part of a file.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The text up to the part, with the comment that begins it.
    before: &'a str,
    /// What is between the comments.
    pub(crate) inside: &'a str,
    /// The comment that ends it, and all after it.
    after: &'a str,
}

/// The part of a name, which `<!-- tidy: name -->` begins.
pub(crate) fn find<'a>(text: &'a str, name: &str) -> Option<Part<'a>> {
    let begin = format!("<!-- tidy: {name} -->\n");
    let (before, rest) = text.split_at(text.find(&begin)? + begin.len());
    let (inside, after) = rest.split_at(rest.find(END)?);
    Some(Part { before, inside, after })
}

/// The file's text with the part as it should be, or the reason why there is none.
pub(crate) fn updated(
    path: &str,
    text: Option<&str>,
    name: &str,
    wanted: &str,
) -> Result<String, Violation> {
    let missing = || {
        let message = format!("the part between `<!-- tidy: {name} -->` and `{END}` is missing");
        Violation::new(path, 1, message)
    };
    let part = text.and_then(|text| find(text, name)).ok_or_else(missing)?;
    Ok(format!("{}{wanted}{}", part.before, part.after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_comments_changes() {
        let text = "a\n<!-- tidy: x -->\nold\n<!-- tidy: end -->\nb\n";
        let expected = "a\n<!-- tidy: x -->\nnew\n<!-- tidy: end -->\nb\n";
        assert_eq!(updated("f.md", Some(text), "x", "new\n"), Ok(expected.to_owned()));
        assert_eq!(find(text, "x").unwrap().inside, "old\n");
    }

    #[test]
    fn a_part_that_is_missing_is_reported() {
        let missing = updated("f.md", Some("a"), "x", "new\n").unwrap_err();
        assert!(missing.to_string().starts_with("f.md:1: the part between"));
    }
}
