//! Rule: `lib.rs` and `mod.rs` hold docs and re-exports, no logic.

use syn::spanned::Spanned;
use syn::{Attribute, Item};

use super::violation::Violation;

/// Checks a file if it is a crate's or a folder's root.
pub(crate) fn check(path: &str, file: &syn::File) -> Vec<Violation> {
    match path.rsplit('/').next() {
        Some(name @ ("lib.rs" | "mod.rs")) => check_items(path, name, &file.items),
        _ => Vec::new(),
    }
}

fn check_items(path: &str, name: &str, items: &[Item]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in items {
        match item {
            Item::Use(_) | Item::ExternCrate(_) => {}
            // The compiler wants a procedural macro's entry at the root of its crate.
            Item::Fn(function) if function.attrs.iter().any(is_proc_macro) => {}
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    violations.extend(check_items(path, name, items));
                }
            }
            other => {
                let line = other.span().start().line;
                let message = format!("`{name}` holds only docs, `mod` and `use`: move this item");
                violations.push(Violation::new(path, line, message));
            }
        }
    }
    violations
}

fn is_proc_macro(attribute: &Attribute) -> bool {
    ["proc_macro", "proc_macro_attribute", "proc_macro_derive"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(path, &syn::parse_file(text).unwrap());
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn docs_modules_and_uses_are_welcome() {
        let text = "//! Docs.\n#![forbid(unsafe_code)]\nextern crate alloc;\nmod a;\n\
                    pub use a::B;\npub mod prelude {\n    pub use crate::a::B;\n}\n";
        assert_eq!(lines("crates/x/src/lib.rs", text), [0; 0]);
    }

    #[test]
    fn anything_else_is_not() {
        let text = "mod a;\nfn f() {}\nstruct S;\nmacro_rules! m { () => {} }\n\
                    mod inner {\n    const C: u8 = 1;\n}\n";
        assert_eq!(lines("lib.rs", text), [2, 3, 4, 6]);
        assert_eq!(lines("src/store/mod.rs", text), [2, 3, 4, 6]);
    }

    #[test]
    fn other_files_hold_what_they_like() {
        assert_eq!(lines("src/main.rs", "fn main() {}"), [0; 0]);
        assert_eq!(lines("src/my_lib.rs", "fn f() {}"), [0; 0]);
    }

    #[test]
    fn a_procedural_macro_must_be_at_the_root() {
        let text = "#[proc_macro_attribute]\npub fn idempotent() {}\nfn helper() {}";
        assert_eq!(lines("lib.rs", text), [3]);
    }
}
