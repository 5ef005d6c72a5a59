//! Rule: the top-level modules of a crate do not depend on each other in a circle.

use super::modules::Graph;
use super::violation::Violation;

/// Checks the graphs of a package's library and programs.
pub(crate) fn check(graphs: &[Graph]) -> Vec<Violation> {
    let cyclic = graphs.iter().flat_map(Graph::cyclic);
    let edges = cyclic.map(|((from, to), place)| {
        let message = format!("module `{from}` uses `{to}`, which leads back to `{from}`");
        Violation::new(&place.path, place.line, message)
    });
    edges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::modules;

    fn clean() -> Graph {
        modules::graph("lib.rs", &|_| Some("mod a { use crate::b; }\nmod b {}"))
    }

    fn cyclic() -> Graph {
        modules::graph("lib.rs", &|_| Some("mod a { use crate::b; }\nmod b { use crate::a; }"))
    }

    #[test]
    fn every_edge_of_a_cycle_is_named_with_its_line() {
        let found = check(&[clean(), cyclic()]);
        let message = "lib.rs:1: module `a` uses `b`, which leads back to `a`";
        assert_eq!(found[0].to_string(), message);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_crate_without_cycles_is_in_order() {
        assert_eq!(check(&[clean()]), []);
    }
}
