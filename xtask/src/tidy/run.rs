//! Applies every rule to every file it is about.

use anyhow::{Result, bail};

use super::modules::{self, Graph};
use super::packages::{self, Package};
use super::tree::Tree;
use super::violation::Violation;
use super::{
    banned, cycles, generated, law, links, manifest, map, named_files, portable, published,
    reasons, roots, size,
};

/// What tidy does.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the generated parts of documents before the check
    #[arg(long)]
    write: bool,
    /// Print which top-level module of a package names which, and check nothing
    #[arg(long, value_name = "PACKAGE", conflicts_with = "write")]
    graph: Option<String>,
    /// Print the graph in the language of Graphviz
    #[arg(long, requires = "graph")]
    dot: bool,
}

/// Prints every violation as `path:line: message`, and fails if there is one.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tree = Tree::read()?;
    let crates = Crate::read_all(&tree)?;
    if let Some(name) = &options.graph {
        return print_graph(&crates, name, options.dot);
    }
    let mut violations = check_files(&tree);
    violations.extend(check_packages(&tree, &crates));
    violations.extend(generated_parts(&tree, &crates, options.write)?);
    violations.sort();
    violations.dedup();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: {} files are in order", tree.files().count());
            Ok(())
        }
        count => bail!("tidy found {count} violation(s) of the style rules"),
    }
}

fn check_files(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let paths: Vec<&str> = tree.files().map(|(path, _)| path).collect();
    for (path, text) in tree.files() {
        if path.ends_with(".rs") {
            violations.extend(check_rust(path, text));
        }
        if path.ends_with(".md") && !named_files::is_history(path) {
            violations.extend(named_files::check(path, text, &paths));
        }
        if path.ends_with(".md") {
            violations.extend(links::check(path, text, &|target| {
                if target.ends_with(".md")
                    && let Some(text) = tree.text(target)
                {
                    links::Found::Markdown(links::anchors(text))
                } else if tree.exists(target) {
                    links::Found::Other
                } else {
                    links::Found::Nothing
                }
            }));
        }
        // Cargo writes the lock file, and the registry's address with it.
        if path != "Cargo.lock" {
            violations.extend(portable::check(path, text));
        }
    }
    violations
}

fn check_rust(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = size::check_text(path, text);
    match syn::parse_file(text) {
        Ok(file) => {
            violations.extend(size::check_functions(path, &file));
            violations.extend(roots::check(path, &file));
            violations.extend(banned::check(path, text, &file));
        }
        Err(error) => {
            let line = error.span().start().line;
            violations.push(Violation::new(path, line, format!("cannot be parsed: {error}")));
        }
    }
    violations
}

fn check_packages(tree: &Tree, crates: &[Crate]) -> Vec<Violation> {
    let packages: Vec<_> = crates.iter().map(|it| it.package.clone()).collect();
    let mut violations = law::check_names(&packages);
    violations.extend(law::LAW.check(&packages, &|path| tree.text(path)));
    for Crate { package, graphs } in crates {
        if let Some(text) = tree.text(&package.manifest) {
            violations.extend(manifest::check(&package.manifest, text));
        }
        violations.extend(published::check(package, &|path| tree.exists(path)));
        violations.extend(cycles::check(graphs));
    }
    violations
}

/// A package with the module graphs of its library and its programs.
#[derive(Debug)]
struct Crate {
    package: Package,
    graphs: Vec<Graph>,
}

impl Crate {
    fn read_all(tree: &Tree) -> Result<Vec<Self>> {
        let crates = packages::read()?.into_iter().map(|package| {
            let roots = package.roots.iter();
            let graphs = roots.map(|root| modules::graph(root, &|path| tree.text(path))).collect();
            Self { package, graphs }
        });
        Ok(crates.collect())
    }
}

/// Prints the module graph of one package.
fn print_graph(crates: &[Crate], name: &str, dot: bool) -> Result<()> {
    let Some(found) = crates.iter().find(|it| it.package.name == name) else {
        bail!("there is no package `{name}`");
    };
    for graph in found.graphs.iter().filter(|graph| !graph.modules.is_empty()) {
        print!("{}", if dot { graph.to_dot() } else { graph.to_text() });
    }
    Ok(())
}

/// Checks the parts of documents that tidy writes, or writes them.
fn generated_parts(tree: &Tree, crates: &[Crate], write: bool) -> Result<Vec<Violation>> {
    let (map, mut violations) = draw_map(tree, crates);
    let packages: Vec<_> = crates.iter().map(|it| it.package.clone()).collect();
    let (path, name) = reasons::PLACE;
    let part = tree.text(path).and_then(|text| generated::find(text, name));
    let current = part.map_or("", |part| part.inside);
    violations.extend(reasons::check(&packages, current));
    for ((path, name), wanted) in
        [(map::PLACE, map), (reasons::PLACE, reasons::table(&packages, current))]
    {
        match generated::updated(path, tree.text(path), name, &wanted) {
            Ok(text) if tree.text(path) == Some(&text) => {}
            Ok(text) if write => {
                println!("tidy: {path} is written");
                tree.write(path, &text)?;
            }
            Ok(_) => {
                let message =
                    format!("the part `{name}` is not current: `cargo xtask tidy --write`");
                violations.push(Violation::new(path, 1, message));
            }
            Err(missing) => violations.push(missing),
        }
    }
    Ok(violations)
}

fn draw_map(tree: &Tree, crates: &[Crate]) -> (String, Vec<Violation>) {
    let packages: Vec<_> = crates.iter().map(|it| (&it.package, it.graphs.as_slice())).collect();
    map::draw(&packages, &|path| tree.text(path), &|path| tree.exists(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_parse_is_reported_at_its_line() {
        let violations = check_rust("a.rs", "fn a() {}\nfn fn\n");
        assert_eq!(violations.len(), 1);
        assert!(violations[0].to_string().starts_with("a.rs:2: cannot be parsed"));
    }

    #[test]
    fn a_tidy_file_passes() {
        assert_eq!(check_rust("a.rs", "//! Docs.\nfn a() {}\n"), []);
    }
}
