//! Rule: the top-level modules of a crate do not depend on each other in a circle.

use super::modules::Graph;
use super::violation::Violation;

/// Crates that still have cycles, each with the number of its edges that lie on one. The number
/// may only fall; a crate without cycles leaves the list.
pub(crate) const STILL_CYCLIC: &[(&str, usize)] =
    &[("justonce-embedded", 41), ("justonce-model", 40), ("justonce-orders", 2)];

/// Where the list stands.
const LIST: &str = "xtask/src/tidy/cycles.rs";

/// Checks the graphs of a package's library and programs.
pub(crate) fn check(package: &str, graphs: &[Graph], still: &[(&str, usize)]) -> Vec<Violation> {
    let cyclic: Vec<_> = graphs.iter().flat_map(Graph::cyclic).collect();
    let listed = still.iter().find(|(name, _)| *name == package).map_or(0, |(_, edges)| *edges);
    if cyclic.is_empty() && listed > 0 {
        let message = format!("`{package}` has no cycles any more: remove its row");
        return vec![Violation::new(LIST, 1, message)];
    }
    if cyclic.len() <= listed {
        return Vec::new();
    }
    let edges = cyclic.into_iter().map(|((from, to), place)| {
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
        let found = check("x", &[clean(), cyclic()], &[]);
        let message = "lib.rs:1: module `a` uses `b`, which leads back to `a`";
        assert_eq!(found[0].to_string(), message);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_listed_crate_has_at_most_its_edges_and_leaves_the_list_when_clean() {
        assert_eq!(check("x", &[clean(), cyclic()], &[("x", 2)]), []);
        assert_eq!(check("x", &[clean(), cyclic()], &[("x", 1)]).len(), 2);
        assert_eq!(check("x", &[clean(), cyclic()], &[("y", 2)]).len(), 2);
        let found = check("x", &[clean()], &[("x", 1)]);
        assert!(found[0].message.contains("remove its row"));
    }
}
