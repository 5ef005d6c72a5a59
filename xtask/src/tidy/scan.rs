//! Reads from a Rust file which modules it declares and which modules of its crate it names.
//!
//! The file is read as tokens, so that paths inside macro calls count too. Doc comments are no
//! paths, and what is compiled for tests only is left out.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::banned::wants_test;

/// What a file says about modules.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The modules in files of their own.
    pub(crate) declared: Vec<Declared>,
    /// The paths that begin at the crate's root or above the module.
    pub(crate) named: Vec<Named>,
    /// The modules written in the file itself, outermost first.
    pub(crate) inline: Vec<Vec<String>>,
}

/// `mod name;`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// The inline modules around it.
    pub(crate) inside: Vec<String>,
    pub(crate) name: String,
    /// The file that `#[path]` names.
    pub(crate) path: Option<String>,
}

/// The name that follows `crate::` or `super::`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The inline modules around it.
    pub(crate) inside: Vec<String>,
    /// How many modules up the path begins; none stands for the crate's root.
    pub(crate) up: Option<usize>,
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// Reads a file.
pub(crate) fn scan(tokens: TokenStream) -> Scan {
    let mut scan = Scan::default();
    scan.walk(tokens, &mut Vec::new());
    scan
}

impl Scan {
    fn walk(&mut self, tokens: TokenStream, inside: &mut Vec<String>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        let mut path = None;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    if let Some((group, after)) = bracketed(after) {
                        rest = if is_for_tests(group) { after_item(after) } else { after };
                        path = file_of(group).or(path);
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    rest = self.module(after, path.take(), inside);
                }
                TokenTree::Ident(word) if word == "crate" || word == "super" => {
                    rest = self.path(first, after, inside);
                }
                TokenTree::Group(group) => self.walk(group.stream(), inside),
                _ => {}
            }
        }
    }

    /// What follows `mod`: a name, and either a semicolon or the module itself.
    fn module<'a>(
        &mut self,
        after: &'a [TokenTree],
        path: Option<String>,
        inside: &mut Vec<String>,
    ) -> &'a [TokenTree] {
        let [TokenTree::Ident(name), body, rest @ ..] = after else {
            return after;
        };
        let name = name.to_string();
        match body {
            TokenTree::Punct(end) if end.as_char() == ';' => {
                self.declared.push(Declared { inside: inside.clone(), name, path });
            }
            TokenTree::Group(group) => {
                inside.push(name);
                self.inline.push(inside.clone());
                self.walk(group.stream(), inside);
                inside.pop();
            }
            _ => {}
        }
        rest
    }

    /// What follows `crate` or `super`, if that begins a path.
    fn path<'a>(
        &mut self,
        first: &TokenTree,
        after: &'a [TokenTree],
        inside: &[String],
    ) -> &'a [TokenTree] {
        let line = first.span().start().line;
        let mut up = (first.to_string() == "super").then_some(1);
        let mut rest = after;
        while let Some((next, after)) = after_colons(rest) {
            rest = after;
            match next {
                TokenTree::Ident(word) if word == "super" => up = up.map(|count| count + 1),
                TokenTree::Ident(name) => {
                    self.names(inside, up, name.to_string(), line);
                    break;
                }
                TokenTree::Group(group) => {
                    for (name, line) in firsts(group) {
                        self.names(inside, up, name, line);
                    }
                    break;
                }
                _ => break,
            }
        }
        rest
    }

    fn names(&mut self, inside: &[String], up: Option<usize>, name: String, line: usize) {
        if name != "self" {
            self.named.push(Named { inside: inside.to_vec(), up, name, line });
        }
    }
}

/// What follows `::`, and what follows that.
fn after_colons(tokens: &[TokenTree]) -> Option<(&TokenTree, &[TokenTree])> {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ':');
    match tokens {
        [a, b, next, rest @ ..] if is_colon(a) && is_colon(b) => Some((next, rest)),
        _ => None,
    }
}

/// The first name of each path of `{a::b, c}`.
fn firsts(group: &Group) -> Vec<(String, usize)> {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let paths = tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ','));
    paths
        .filter_map(|path| match path.first()? {
            TokenTree::Ident(name) => Some((name.to_string(), name.span().start().line)),
            _ => None,
        })
        .collect()
}

/// The brackets of an attribute: what follows `#` or `#!`.
fn bracketed(tokens: &[TokenTree]) -> Option<(&Group, &[TokenTree])> {
    match tokens {
        [TokenTree::Group(group), rest @ ..] if group.delimiter() == Delimiter::Bracket => {
            Some((group, rest))
        }
        _ => None,
    }
}

/// Whether an attribute is `test`, or a `cfg` that wants tests.
fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(group)] => {
            name == "cfg" && wants_test(group.stream())
        }
        _ => false,
    }
}

/// The file of `#[path = "file"]`.
fn file_of(attribute: &Group) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(file)]
            if name == "path" =>
        {
            Some(file.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// What follows an item: it ends with a semicolon or with braces.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    });
    end.and_then(|at| tokens.get(at + 1..)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(Option<usize>, String)> {
        let scan = scan(text.parse().unwrap());
        scan.named.into_iter().map(|named| (named.up, named.name)).collect()
    }

    fn named(text: &str) -> Vec<String> {
        names(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn paths_are_found_wherever_they_are() {
        let text = "use crate::a::{B, c::D};\nuse crate::{e, f::{G, H}, self};\n\
                    fn x() -> crate::i::J { println!(\"{}\", crate::k::L) }\n\
                    macro_rules! m { () => { $crate::n::O } }";
        assert_eq!(named(text), ["a", "e", "f", "i", "k", "n"]);
    }

    #[test]
    fn visibility_and_documents_are_no_paths() {
        assert_eq!(named("/// See [`crate::a`].\npub(crate) fn x() {}"), [""; 0]);
        assert_eq!(named("pub(in crate::a) fn x() {}"), ["a"]);
    }

    #[test]
    fn the_way_up_is_counted() {
        let expected = [(Some(1), "a".to_owned()), (Some(2), "b".to_owned())];
        assert_eq!(names("use super::a::X; use super::super::b;"), expected);
        assert_eq!(names("use self::super::a;"), expected[..1]);
    }

    #[test]
    fn what_tests_name_is_left_out() {
        let text = "#[cfg(test)]\nmod tests { use crate::a; }\n#[cfg(test)] use crate::b;\n\
                    #[test] fn t() { crate::c::d() }\n#[cfg(not(test))] use crate::e;\n\
                    #[cfg(test)] mod more; mod kept;";
        assert_eq!(named(text), ["e"]);
        let declared = scan(text.parse().unwrap()).declared;
        assert_eq!(declared.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["kept"]);
    }

    #[test]
    fn modules_are_found_with_those_around_them() {
        let scan =
            scan("mod a { #[path = \"x/y.rs\"] mod b; use crate::c; } mod d;".parse().unwrap());
        let inside = vec!["a".to_owned()];
        let b = Declared { inside: inside.clone(), name: "b".into(), path: Some("x/y.rs".into()) };
        assert_eq!(scan.declared[0], b);
        assert_eq!(scan.declared[1].inside, [""; 0]);
        assert_eq!(scan.named[0].inside, inside);
        assert_eq!(scan.inline, [inside]);
    }
}
