//! The graph of a crate's top-level modules: which of them names which.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree};

use super::scan::{self, Scan};

/// The module graph of one library or program.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The top-level modules, each with its file.
    pub(crate) modules: BTreeMap<String, String>,
    /// Which module names which, and where.
    pub(crate) edges: BTreeMap<(String, String), Vec<Place>>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) line: usize,
}

/// A file of a crate, and the path of its module.
#[derive(Debug)]
struct Module {
    path: Vec<String>,
    file: String,
    scan: Scan,
}

/// Reads the graph of the crate whose root file is given; `text` finds the text of a file.
pub(crate) fn graph<'a>(root: &str, text: &dyn Fn(&str) -> Option<&'a str>) -> Graph {
    let mut modules = Vec::new();
    load(root, Vec::new(), true, text, &mut modules);
    let mut graph = Graph::default();
    for module in &modules {
        let inline = module.scan.inline.iter().map(|inside| joined(&module.path, inside));
        for path in std::iter::once(module.path.clone()).chain(inline) {
            if let [name] = path.as_slice() {
                graph.modules.insert(name.clone(), module.file.clone());
            }
        }
    }
    let exported = text(root).map(|text| exports(text, &graph.modules)).unwrap_or_default();
    for module in &modules {
        for named in &module.scan.named {
            let path = joined(&module.path, &named.inside);
            // A path that ends below the root stays in its own top-level module.
            let at_root = named.up.is_none_or(|up| up == path.len());
            let Some(from) = path.first().filter(|_| at_root) else {
                continue;
            };
            let target = graph.modules.get_key_value(&named.name).map(|(name, _)| name);
            let Some(to) = target.or_else(|| exported.get(&named.name)).filter(|to| *to != from)
            else {
                continue;
            };
            let place = Place { path: module.file.clone(), line: named.line };
            graph.edges.entry((from.clone(), to.clone())).or_default().push(place);
        }
    }
    graph
}

fn joined(path: &[String], inside: &[String]) -> Vec<String> {
    path.iter().chain(inside).cloned().collect()
}

/// Reads a file and those of its modules. A file that cannot be read is another rule's concern.
fn load<'a>(
    file: &str,
    path: Vec<String>,
    is_folder: bool,
    text: &dyn Fn(&str) -> Option<&'a str>,
    modules: &mut Vec<Module>,
) {
    let Some(tokens) = text(file).and_then(|text| text.parse().ok()) else {
        return;
    };
    let scan = scan::scan(tokens);
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let below = if is_folder { folder } else { file.trim_end_matches(".rs") };
    for child in &scan.declared {
        let mut child_path = joined(&path, &child.inside);
        child_path.push(child.name.clone());
        let place: Vec<_> =
            std::iter::once(below).chain(child.inside.iter().map(String::as_str)).collect();
        let place = place.join("/");
        let single = format!("{place}/{}.rs", child.name);
        let in_folder = format!("{place}/{}/mod.rs", child.name);
        if let Some(named) = &child.path {
            load(&format!("{folder}/{named}"), child_path, true, text, modules);
        } else if text(&single).is_some() {
            load(&single, child_path, false, text, modules);
        } else {
            load(&in_folder, child_path, true, text, modules);
        }
    }
    modules.push(Module { path, file: file.to_owned(), scan });
}

/// The names that the root file re-exports, each with the module that it comes from.
fn exports(root: &str, modules: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let items = syn::parse_file(root).map(|file| file.items).unwrap_or_default();
    for item in items {
        if let Item::Use(item) = item {
            collect(&item.tree, None, modules, &mut names);
        }
    }
    names
}

fn collect(
    tree: &UseTree,
    from: Option<&str>,
    modules: &BTreeMap<String, String>,
    names: &mut BTreeMap<String, String>,
) {
    let mut add = |name: String, module: &str| {
        if modules.contains_key(module) {
            names.insert(name, module.to_owned());
        }
    };
    match (tree, from) {
        (UseTree::Path(path), _) => {
            let first = path.ident.to_string();
            let is_prefix = from.is_none() && (first == "self" || first == "crate");
            let from = from.or((!is_prefix).then_some(first.as_str()));
            collect(&path.tree, from, modules, names);
        }
        (UseTree::Group(group), _) => {
            group.items.iter().for_each(|tree| collect(tree, from, modules, names));
        }
        (UseTree::Name(name), Some(from)) => add(name.ident.to_string(), from),
        (UseTree::Rename(name), Some(from)) => add(name.rename.to_string(), from),
        // Names behind a star are not known: a path through one makes no edge.
        _ => {}
    }
}

impl Graph {
    /// The edges that lie on a cycle.
    pub(crate) fn cyclic(&self) -> Vec<(&(String, String), &Place)> {
        let reach: BTreeMap<_, _> =
            self.modules.keys().map(|name| (name, self.reach(name))).collect();
        let comes_back =
            |from: &String, to: &String| reach.get(to).is_some_and(|all| all.contains(from));
        let edges = self.edges.iter().filter(|((from, to), _)| comes_back(from, to));
        edges.filter_map(|(edge, places)| Some((edge, places.first()?))).collect()
    }

    /// What a module leads to, by any number of edges.
    fn reach<'a>(&'a self, from: &'a String) -> BTreeSet<&'a String> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(next) = open.pop() {
            for (_, to) in self.edges.keys().filter(|(from, _)| from == next) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }

    /// The graph as text: a module, and what it names.
    pub(crate) fn to_text(&self) -> String {
        let cyclic: BTreeSet<_> = self.cyclic().into_iter().map(|(edge, _)| edge).collect();
        let mut text = String::new();
        for name in self.modules.keys() {
            text.push_str(name);
            text.push('\n');
            for (edge, places) in self.edges.iter().filter(|((from, _), _)| from == name) {
                let mark = if cyclic.contains(edge) { "  (cycle)" } else { "" };
                let first = places.first().map_or_else(String::new, ToString::to_string);
                text.push_str(&format!("  -> {:<24} {:>3}  {first}{mark}\n", edge.1, places.len()));
            }
        }
        text
    }

    /// The graph in the language of Graphviz; edges of cycles are red.
    pub(crate) fn to_dot(&self) -> String {
        let cyclic: BTreeSet<_> = self.cyclic().into_iter().map(|(edge, _)| edge).collect();
        let names = self.modules.keys().map(|name| format!("  \"{name}\";\n"));
        let edges = self.edges.keys().map(|edge| {
            let colour = if cyclic.contains(edge) { " [color=red]" } else { "" };
            format!("  \"{}\" -> \"{}\"{colour};\n", edge.0, edge.1)
        });
        format!("digraph {{\n{}}}\n", names.chain(edges).collect::<String>())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(files: &[(&'static str, &'static str)]) -> Graph {
        let text = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
        graph("x/src/lib.rs", &text)
    }

    fn edges(graph: &Graph) -> Vec<(&str, &str)> {
        graph.edges.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect()
    }

    #[test]
    fn modules_in_folders_belong_to_the_top() {
        let graph = graph_of(&[
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a/mod.rs", "mod deep; use super::b;"),
            ("x/src/a/deep.rs", "use super::super::c::X; use super::y;"),
            ("x/src/b.rs", "mod inner;"),
            ("x/src/b/inner.rs", "use crate::c::{X};"),
            ("x/src/c.rs", ""),
        ]);
        assert_eq!(edges(&graph), [("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!(graph.cyclic(), []);
        let place = &graph.edges[&("b".to_owned(), "c".to_owned())][0];
        assert_eq!(place.to_string(), "x/src/b/inner.rs:1");
    }

    #[test]
    fn a_re_export_leads_to_its_module() {
        let graph = graph_of(&[
            (
                "x/src/lib.rs",
                "mod a; mod b; pub use a::{One, deep::Two as Three}; pub use self::b::B;",
            ),
            ("x/src/a.rs", "use crate::B;"),
            ("x/src/b.rs", "fn f(_: crate::Three) {} fn g(_: crate::Unknown) {}"),
        ]);
        assert_eq!(edges(&graph), [("a", "b"), ("b", "a")]);
    }

    #[test]
    fn a_cycle_is_all_its_edges_and_no_others() {
        let graph = graph_of(&[
            ("x/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("x/src/a.rs", "use crate::b;"),
            ("x/src/b.rs", "use crate::c;"),
            ("x/src/c.rs", "use crate::a; use crate::d;"),
            ("x/src/d.rs", ""),
        ]);
        let cyclic: Vec<_> = graph.cyclic().into_iter().map(|(edge, _)| edge.0.as_str()).collect();
        assert_eq!(cyclic, ["a", "b", "c"]);
        assert!(graph.to_text().contains("-> d"));
        assert!(graph.to_dot().contains("\"a\" -> \"b\" [color=red];"));
        assert!(graph.to_dot().contains("\"c\" -> \"d\";"));
    }
}
