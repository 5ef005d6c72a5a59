//! The valid name that was probably meant.

/// Names further apart than a third of their letters are no typing mistakes.
const LETTERS_PER_MISTAKE: usize = 3;

/// The nearest of the valid names, if one is near.
pub(super) fn nearest<'n>(
    wrong: &str,
    valid: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let wrong = plain(wrong);
    let mistakes = |name: &str| strsim::damerau_levenshtein(&wrong, &plain(name));
    let (count, name) =
        valid.into_iter().map(|name| (mistakes(name), name)).min_by_key(|(count, _)| *count)?;
    let allowed = (wrong.chars().count().max(name.chars().count()) / LETTERS_PER_MISTAKE).max(1);
    (count <= allowed).then_some(name)
}

/// Case and the choice of the dash are never the point.
fn plain(name: &str) -> String {
    // No valid name is longer, and comparing takes time by length.
    name.chars().take(80).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// `did you mean …?`, if there is something near.
pub(super) fn did_you_mean<'n>(
    wrong: &str,
    valid: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    nearest(wrong, valid).map(|name| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_near_and_other_words_are_not() {
        let names = ["retention", "lease", "lease_cap", "on_lapsed"];
        assert_eq!(nearest("retentoin", names), Some("retention"));
        assert_eq!(nearest("leasecap", names), Some("lease_cap"));
        assert_eq!(nearest("On-Lapsed", names), Some("on_lapsed"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("x", []), None);
    }
}
