//! Rule: no unfinished code, no switched-off tests, and no test that waits for time to pass.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ItemImpl, ItemMod, Meta};

use super::violation::Violation;

/// What never stays in the tree, with the reason. Written in pieces so that this file passes.
const BANNED: [(&str, &str); 4] = [
    (concat!("todo", "!("), "finish it or leave it out"),
    (concat!("unimplemented", "!("), "finish it or leave it out"),
    (concat!("dbg", "!("), "it was for one debugging session"),
    (concat!("#[", "ignore"), "fix the test or delete it: a test that never runs proves nothing"),
];

/// How a sleep looks where it is called.
const SLEEP: &str = concat!("sleep", "(");
/// The same until a moment.
const SLEEP_UNTIL: &str = concat!("sleep", "_until(");
/// The paths by which a sleep is called; an imported one has no path at all.
const SLEEP_MODULES: [&str; 2] = ["thread::", "time::"];
/// The comment that allows a sleep on its line, followed by the reason.
const ALLOW_SLEEP: &str = "tidy: allow-sleep";

/// Checks every line of a Rust file.
pub(crate) fn check(path: &str, text: &str, file: &syn::File) -> Vec<Violation> {
    let test_lines = TestLines::of(path, file);
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        for (needle, reason) in BANNED {
            if has_word(line, needle) {
                violations.push(Violation::new(path, number, format!("`{needle}`: {reason}")));
            }
        }
        if test_lines.contains(number) && sleeps(line) && !sleep_is_allowed(line) {
            let message = format!(
                "a test waits for a signal, not for time; if it must, say why on this line: \
                 `// {ALLOW_SLEEP}: reason`"
            );
            violations.push(Violation::new(path, number, message));
        }
    }
    violations
}

/// Whether the needle occurs and is not merely the end or the beginning of a longer name.
fn has_word(line: &str, needle: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        let (before, rest) = line.split_at(at);
        let after = rest.strip_prefix(needle).and_then(|after| after.chars().next());
        let longer_before = needle.starts_with(is_name) && before.ends_with(is_name);
        let longer_after = needle.ends_with(is_name) && after.is_some_and(is_name);
        !longer_before && !longer_after
    })
}

/// Whether the line calls a sleep of the standard library or the runtime, by path or imported.
fn sleeps(line: &str) -> bool {
    if line.trim_start().starts_with("//") {
        return false;
    }
    let calls = line.match_indices(SLEEP).chain(line.match_indices(SLEEP_UNTIL));
    calls.map(|(at, _)| line.split_at(at)).any(|(before, _)| {
        let imported = !before.ends_with(|c: char| c.is_alphanumeric() || "_.:".contains(c))
            && !before.ends_with("fn ");
        imported || SLEEP_MODULES.iter().any(|module| before.ends_with(module))
    })
}

fn sleep_is_allowed(line: &str) -> bool {
    line.split_once("//")
        .and_then(|(_, comment)| comment.split_once(ALLOW_SLEEP))
        .is_some_and(|(_, reason)| reason.contains(char::is_alphabetic))
}

/// The lines of a file that are test code.
#[derive(Debug, Default)]
struct TestLines {
    all: bool,
    ranges: Vec<(usize, usize)>,
}

impl TestLines {
    fn of(path: &str, file: &syn::File) -> Self {
        let mut lines = Self {
            all: path.split('/').any(|part| part == "tests" || part == "tests.rs")
                || is_test_code(&file.attrs),
            ranges: Vec::new(),
        };
        lines.visit_file(file);
        lines
    }

    fn contains(&self, line: usize) -> bool {
        self.all || self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    fn add(&mut self, attributes: &[Attribute], item: &impl Spanned) {
        if is_test_code(attributes) {
            let span = item.span();
            self.ranges.push((span.start().line, span.end().line));
        }
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, node: &'ast ItemMod) {
        self.add(&node.attrs, node);
        visit::visit_item_mod(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast ItemFn) {
        self.add(&node.attrs, node);
        visit::visit_item_fn(self, node);
    }

    fn visit_item_impl(&mut self, node: &'ast ItemImpl) {
        self.add(&node.attrs, node);
        visit::visit_item_impl(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast ImplItemFn) {
        self.add(&node.attrs, node);
        visit::visit_impl_item_fn(self, node);
    }
}

/// Whether an item is a test, such as `#[tokio::test]`, or is compiled for tests only.
fn is_test_code(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().segments.last().is_some_and(|name| name.ident == "test");
        let is_cfg_test = match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => wants_test(list.tokens.clone()),
            _ => false,
        };
        is_test || is_cfg_test
    })
}

/// Whether a `cfg` condition names `test` other than to exclude it.
pub(crate) fn wants_test(condition: TokenStream) -> bool {
    let mut negated = false;
    for token in condition {
        match token {
            TokenTree::Ident(name) if name == "test" => return true,
            TokenTree::Ident(name) => negated = name == "not",
            TokenTree::Group(group) if !negated && wants_test(group.stream()) => return true,
            _ => negated = false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(path, text, &syn::parse_file(text).unwrap());
        violations.iter().map(|violation| violation.line).collect()
    }

    fn thread_sleep() -> String {
        format!("std::thread::{SLEEP}d);")
    }

    #[test]
    fn unfinished_code_and_ignored_tests_are_found() {
        for (needle, _) in BANNED {
            assert!(has_word(&format!("    {needle}"), needle));
        }
        let [(todo, _), _, (dbg, _), (ignore, _)] = BANNED;
        let text = format!("fn a() {{ {todo}) }}\n{ignore}]\nfn b() {{ {dbg}1) }}\n");
        assert_eq!(lines("src/a.rs", &text), [1, 2, 3]);
    }

    #[test]
    fn longer_names_are_left_alone() {
        let [(todo, _), .., (ignore, _)] = BANNED;
        assert!(!has_word(&format!("my_{todo})"), todo));
        assert!(!has_word(&format!("{ignore}d_by_codec]"), ignore));
    }

    #[test]
    fn a_sleep_is_found_in_tests_only() {
        let text = format!("fn a() {{\n    {}\n}}\n", thread_sleep());
        assert_eq!(lines("crates/x/src/a.rs", &text), [0; 0]);
        assert_eq!(lines("crates/x/tests/a.rs", &text), [2]);
        assert_eq!(lines("crates/x/src/a/tests.rs", &text), [2]);
    }

    #[test]
    fn a_sleep_is_found_in_code_that_is_built_for_tests() {
        let call = thread_sleep();
        for attribute in ["#[cfg(test)]", "#[cfg(all(unix, test))]", "#[tokio::test]"] {
            let text = format!("{attribute}\nfn a() {{\n    {call}\n}}\n");
            assert_eq!(lines("src/a.rs", &text), [3], "{attribute}");
        }
        let text = format!("#[cfg(test)]\nmod tests {{\n    fn a() {{\n{call}\n    }}\n}}\n");
        assert_eq!(lines("src/a.rs", &text), [4]);
        let text = format!("#![cfg(test)]\nfn a() {{\n{call}\n}}\n");
        assert_eq!(lines("src/a.rs", &text), [3]);
        let text = format!("#[cfg(not(test))]\nfn a() {{\n{call}\n}}\n");
        assert_eq!(lines("src/a.rs", &text), [0; 0]);
    }

    #[test]
    fn a_sleep_has_many_spellings() {
        assert!(sleeps(&format!("tokio::time::{SLEEP}d).await")));
        assert!(sleeps(&format!("    {SLEEP}d).await")));
        assert!(sleeps(&format!("    {SLEEP_UNTIL}end).await")));
        assert!(sleeps(&format!("tokio::time::{SLEEP_UNTIL}end).await")));
        assert!(!sleeps(&format!("clock.{SLEEP}d).await")));
        assert!(!sleeps(&format!("Clock::{SLEEP}d).await")));
        assert!(!sleeps(&format!("fn {SLEEP}d: Duration) {{")));
        assert!(!sleeps(&format!("// thread::{SLEEP}d)")));
    }

    #[test]
    fn a_sleep_is_allowed_with_a_reason() {
        let call = thread_sleep();
        assert!(sleep_is_allowed(&format!("{call} // tidy: allow-sleep: the disk has no signal")));
        assert!(!sleep_is_allowed(&format!("{call} // tidy: allow-sleep")));
        assert!(!sleep_is_allowed(&format!("{call} // tidy: allow-sleep: ")));
        assert!(!sleep_is_allowed(&call));
    }
}
