//! The tables against the files: mutants do not rot, and no new file is forgotten.

use super::files;
use super::store::Store;
use crate::cmd::workspace_root;

#[test]
fn every_file_has_a_mutant_and_every_mutant_its_place() {
    for store in Store::ALL {
        let texts = files::read(&workspace_root(), store).unwrap();
        assert!(texts.len() > 20, "{store:?}: {} files", texts.len());
        files::check(&texts, &store.mutants()).unwrap();
    }
}

#[test]
fn no_mutant_is_listed_twice() {
    for store in Store::ALL {
        let mut all: Vec<String> = store.mutants().iter().map(ToString::to_string).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
