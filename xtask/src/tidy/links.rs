//! Rule: a link inside the tree leads somewhere, to the heading if it names one.

use std::collections::{BTreeMap, BTreeSet};

use super::violation::Violation;
use crate::markdown::{self, Kind};

/// What a link's path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No file and no directory.
    Nothing,
    /// A Markdown file with these anchors.
    Markdown(BTreeSet<String>),
    /// A directory, or a file whose anchors are not known.
    Other,
}

/// Checks the links of one Markdown file; `find` looks at a path relative to the root.
pub(crate) fn check(path: &str, text: &str, find: &dyn Fn(&str) -> Found) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, target) in links(text) {
        if let Some(problem) = problem(path, text, &target, find) {
            let message = format!("link to `{target}`: {problem}");
            violations.push(Violation::new(path, line, message));
        }
    }
    violations
}

/// What is wrong with a link, if anything is.
fn problem(
    path: &str,
    text: &str,
    target: &str,
    find: &dyn Fn(&str) -> Found,
) -> Option<&'static str> {
    // Other sites are not ours to check, and rustdoc checks the paths of Rust items.
    if target.contains("://") || target.starts_with("mailto:") || target.contains("::") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let found = if file.is_empty() {
        Found::Markdown(anchors(text))
    } else {
        match resolve(path, &file.replace("%20", " ")) {
            Some(resolved) => find(&resolved),
            None => return Some("it leads out of the repository"),
        }
    };
    match (found, anchor) {
        (Found::Nothing, _) => Some("there is no such file"),
        (Found::Markdown(anchors), Some(anchor)) if !anchors.contains(anchor) => {
            Some("there is no such heading")
        }
        _ => None,
    }
}

/// A link's path relative to the root; one that begins with a slash already starts there.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    if !link.starts_with('/') {
        parts.extend(from.split('/'));
        parts.pop();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// All links of a text: inline, images, and reference definitions, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for line in markdown::lines(text) {
        if line.kind != Kind::Prose {
            continue;
        }
        let prose = without_code(line.text);
        if let Some(target) = definition(&prose) {
            links.push((line.number, target));
        }
        for (at, opening) in prose.match_indices("](") {
            let (_, rest) = prose.split_at(at + opening.len());
            if let Some(target) = inline_target(rest) {
                links.push((line.number, target));
            }
        }
    }
    links
}

/// The target of `[name]: target`; a footnote is not a link.
fn definition(line: &str) -> Option<String> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    if name.starts_with('^') || name.contains(']') {
        return None;
    }
    target.split_whitespace().next().map(|target| target.trim_matches(['<', '>']).to_owned())
}

/// The target of an inline link, given what follows its opening parenthesis.
fn inline_target(rest: &str) -> Option<String> {
    if let Some(bracketed) = rest.strip_prefix('<') {
        return bracketed.split_once('>').map(|(target, _)| target.to_owned());
    }
    let mut depth = 0;
    let end = rest.find(|c: char| match c {
        '(' => {
            depth += 1;
            false
        }
        ')' if depth == 0 => true,
        ')' => {
            depth -= 1;
            false
        }
        _ => false,
    })?;
    // A title may follow the target.
    rest.split_at(end).0.split_whitespace().next().map(str::to_owned)
}

/// The line without its inline code, which shows links rather than making them.
fn without_code(line: &str) -> String {
    let mut prose = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        let (before, marked) = rest.split_at(at);
        prose.push_str(before);
        let inner = marked.trim_start_matches('`');
        let (marks, _) = marked.split_at(marked.len() - inner.len());
        // Code ends with as many marks as it began with; marks that open nothing stay prose.
        rest = after_closing(inner, marks).unwrap_or(inner);
    }
    prose.push_str(rest);
    prose
}

/// What follows the first run of exactly these marks.
fn after_closing<'a>(text: &'a str, marks: &str) -> Option<&'a str> {
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        let (_, marked) = rest.split_at(at);
        rest = marked.trim_start_matches('`');
        if marked.len() - rest.len() == marks.len() {
            return Some(rest);
        }
    }
    None
}

/// The anchors of a Markdown text: its headings as GitHub names them, and explicit ids.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in markdown::lines(text).iter().filter(|line| line.kind == Kind::Prose) {
        if let Some(heading) = heading(line.text) {
            let slug = slug(heading);
            let count = seen.entry(slug.clone()).or_default();
            anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
            *count += 1;
        }
        for attribute in ["id=\"", "name=\""] {
            let ids = line.text.split(attribute).skip(1);
            anchors.extend(ids.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.into()));
        }
    }
    anchors
}

/// The text of a heading such as `## Words`.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim_end_matches('#').trim())
}

/// A heading's anchor: lower case, no punctuation, dashes for spaces, a link's text only.
fn slug(heading: &str) -> String {
    let mut plain = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with one Markdown file, `docs/b.md`, that has one heading, and a folder `src`.
    fn find(path: &str) -> Found {
        match path {
            "docs/b.md" => Found::Markdown(anchors("# The words\n")),
            "src" | "docs/my file.txt" => Found::Other,
            _ => Found::Nothing,
        }
    }

    fn problems(text: &str) -> Vec<String> {
        check("docs/a.md", text, &find).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Here\n[a](b.md) [b](./b.md#the-words) ![c](../src) [d](/docs/b.md \"T\")\n\
                    [e](#here) [f](<my file.txt>) [g](my%20file.txt) [h](https://example.org/x)\n\
                    [i](mailto:a@example.org) [j](crate::Store)\n[k]: b.md#the-words\n[^1]: no\n";
        assert_eq!(problems(text), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(problems("[a](c.md)"), ["link to `c.md`: there is no such file"]);
        assert_eq!(problems("[a](b.md#no)"), ["link to `b.md#no`: there is no such heading"]);
        assert_eq!(problems("[a](#no)"), ["link to `#no`: there is no such heading"]);
        assert_eq!(problems("[a]: c.md"), ["link to `c.md`: there is no such file"]);
        let message = "link to `../../x`: it leads out of the repository";
        assert_eq!(problems("[a](../../x)"), [message]);
        assert_eq!(problems("[![a](no.png)](b.md)"), ["link to `no.png`: there is no such file"]);
    }

    #[test]
    fn code_shows_links_but_makes_none() {
        assert_eq!(problems("`[a](c.md)` and\n```\n[a](c.md)\n```\n"), [""; 0]);
        assert_eq!(problems("``a ` [a](c.md)`` and `b`"), [""; 0]);
        assert_eq!(problems("`a` ` [a](c.md)").len(), 1);
        assert_eq!(problems("[`b`](c.md)").len(), 1);
    }

    #[test]
    fn the_line_is_reported() {
        assert_eq!(check("a.md", "x\n\n[a](c.md)", &find)[0].line, 3);
    }

    #[test]
    fn anchors_are_named_as_github_does() {
        let text = "# Hello, World!\n## `claim()` & more\n## Twice\n## Twice ##\n\
                    ## See [the docs](b.md)\n### snake_case\n#no\n<a id=\"given\"></a>\n\
                    ```\n# comment\n```\n";
        let expected = [
            "claim--more",
            "given",
            "hello-world",
            "see-the-docs",
            "snake_case",
            "twice",
            "twice-1",
        ];
        assert_eq!(anchors(text), expected.map(str::to_owned).into());
    }
}
