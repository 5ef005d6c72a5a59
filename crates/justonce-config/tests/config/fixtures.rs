//! What is said about a configuration, word for word: complaints about wrong ones, explanations and
//! warnings about right ones.
//!
//! Each `.toml` under `tests/config/fixtures` has a `.txt` beside it. After a change of words run
//!
//! ```text
//! JUSTONCE_WRITE_FIXTURES=1 cargo test -p justonce-config
//! ```
//!
//! and read the difference. It fails if it had to write, so that nobody relies on it in CI.

use std::fs;
use std::path::PathBuf;

use justonce_config::{self as config, Settings};

pub(crate) const WRITE: &str = "JUSTONCE_WRITE_FIXTURES";

/// Compares what is said about every file of a folder with what should be.
fn compare(folder: &str, said: fn(&str, &str) -> String) {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config/fixtures").join(folder);
    let write = std::env::var_os(WRITE).is_some();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a readable file");
        let now = said(&text, &name) + "\n";
        let expected = path.with_extension("txt");
        if fs::read_to_string(&expected).ok().as_deref() != Some(now.as_str()) {
            if write {
                fs::write(&expected, &now).expect("a writable folder");
            }
            wrong.push(format!("{}:\n{now}", expected.display()));
        }
    }
    assert!(count > 0, "there are no files");
    assert!(wrong.is_empty(), "said otherwise now:\n{}", wrong.join("\n"));
}

#[test]
fn wrong_files_are_refused_in_these_words() {
    compare("wrong", |text, name| match config::parse(text, name) {
        Ok(_) => panic!("{name} is taken for right"),
        Err(error) => error.to_string(),
    });
}

#[test]
fn right_files_are_explained_in_these_words() {
    compare("right", |text, name| match config::parse(text, name) {
        Ok(settings) => explained(&settings),
        Err(error) => panic!("{name} is refused:\n{error}"),
    });
}

fn explained(settings: &Settings) -> String {
    let warnings = config::warnings(settings).into_iter().map(|w| format!("warning: {w}"));
    let mut lines = vec![config::explain(settings), String::new()];
    lines.extend(warnings);
    lines.extend(config::never_reached(settings).iter().map(|w| format!("problem: {w}")));
    lines.join("\n").trim_end().to_owned()
}

#[test]
fn every_complaint_about_a_file_names_line_and_column() {
    let text = include_str!("fixtures/wrong/values.toml");
    let error = config::parse(text, "values.toml").expect_err("it is wrong");
    assert!(error.mistakes().len() > 35, "{}", error.mistakes().len());
    for mistake in error.mistakes() {
        let shown = mistake.to_string();
        let place = shown.strip_prefix("values.toml:").expect("the file's name");
        let numbers = place.splitn(3, ':').take(2).filter(|part| part.parse::<usize>().is_ok());
        assert_eq!(numbers.count(), 2, "{shown}");
    }
}
