//! Rule: files, lines and functions stay small enough to be read in one go.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use super::violation::Violation;

/// Lines in a Rust file.
const FILE_LINES_MAX: usize = 500;
/// Characters in a line of Rust.
const LINE_COLUMNS_MAX: usize = 100;
/// Lines in a function, from `fn` to the closing brace. Docs and attributes do not count.
const FUNCTION_LINES_MAX: usize = 70;

/// Checks the length of a file and of its lines.
pub(crate) fn check_text(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines; a file has at most {FILE_LINES_MAX}: split it");
        violations.push(Violation::new(path, lines, message));
    }
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !has_address_in_comment(line) {
            let message = format!("{columns} columns; a line has at most {LINE_COLUMNS_MAX}");
            violations.push(Violation::new(path, index + 1, message));
        }
    }
    violations
}

/// An address cannot be broken over two lines, so a comment may be as long as the address needs.
fn has_address_in_comment(line: &str) -> bool {
    let comment = if line.trim_start().starts_with("//") {
        Some(line)
    } else {
        line.split_once(" // ").map(|(_, comment)| comment)
    };
    comment.is_some_and(|text| text.contains("https://") || text.contains("http://"))
}

/// Checks the length of every function, method and trait method with a body.
pub(crate) fn check_functions(path: &str, file: &syn::File) -> Vec<Violation> {
    let mut visitor = Functions { path, violations: Vec::new() };
    visitor.visit_file(file);
    visitor.violations
}

struct Functions<'a> {
    path: &'a str,
    violations: Vec<Violation>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let lines = block.brace_token.span.close().end().line - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!(
                "`{}` has {lines} lines; a function has at most {FUNCTION_LINES_MAX}",
                signature.ident
            );
            self.violations.push(Violation::new(self.path, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, node: &'ast ItemFn) {
        self.measure(&node.sig, &node.block);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast ImplItemFn) {
        self.measure(&node.sig, &node.block);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast TraitItemFn) {
        if let Some(block) = &node.default {
            self.measure(&node.sig, block);
        }
        visit::visit_trait_item_fn(self, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Vec<Violation> {
        check_functions("a.rs", &syn::parse_file(text).unwrap())
    }

    /// A function of exactly so many lines, after three lines that do not count.
    fn function(lines: usize) -> String {
        let body = "    work();\n".repeat(lines - 2);
        format!("/// Docs.\n///\n#[test]\nfn long() {{\n{body}}}\n")
    }

    #[test]
    fn a_file_may_have_500_lines_and_no_more() {
        assert_eq!(check_text("a.rs", &"x\n".repeat(500)), []);
        let violations = check_text("a.rs", &"x\n".repeat(501));
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.starts_with("501 lines"));
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(check_text("a.rs", &"é".repeat(100)), []);
        let violations = check_text("a.rs", &format!("x\n{}", "é".repeat(101)));
        assert_eq!(violations[0].to_string(), "a.rs:2: 101 columns; a line has at most 100");
    }

    #[test]
    fn only_an_address_in_a_comment_may_be_longer() {
        let address = format!("https://example.org/{}", "x".repeat(100));
        assert_eq!(check_text("a.rs", &format!("    /// See <{address}>.")), []);
        assert_eq!(check_text("a.rs", &format!("let a = 1; // {address}")), []);
        assert_eq!(check_text("a.rs", &format!("let a = \"{address}\";")).len(), 1);
        assert_eq!(check_text("a.rs", &format!("// {}", "x".repeat(100))).len(), 1);
    }

    #[test]
    fn a_function_may_have_70_lines_and_no_more() {
        assert_eq!(functions(&function(70)), []);
        let violations = functions(&function(71));
        let expected = "a.rs:4: `long` has 71 lines; a function has at most 70";
        assert_eq!(violations[0].to_string(), expected);
    }

    #[test]
    fn methods_and_nested_functions_are_measured() {
        let long = function(71);
        assert_eq!(functions(&format!("impl A {{\n{long}}}")).len(), 1);
        assert_eq!(functions(&format!("trait A {{\n{long}}}")).len(), 1);
        assert_eq!(functions(&format!("mod a {{ mod b {{\n{long}}} }}")).len(), 1);
        // Both the inner function and the one around it are too long.
        assert_eq!(functions(&format!("fn outer() {{\n{long}}}")).len(), 2);
    }
}
