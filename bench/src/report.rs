//! What was measured, what was wanted, and whether it was met.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::machine::describe;

/// One measured figure.
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) measured: String,
    pub(crate) wanted: String,
    pub(crate) met: bool,
}

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Adds a figure and shows it at once.
    pub(crate) fn add(&mut self, what: &str, measured: String, wanted: &str, met: bool) {
        let mark = if met { "met" } else { "MISSED" };
        println!("{what}: {measured} (wanted {wanted}: {mark})");
        self.figures.push(Figure { what: what.into(), measured, wanted: wanted.into(), met });
    }

    /// Whether everything that was wanted was met.
    pub(crate) fn all_met(&self) -> bool {
        self.figures.iter().all(|figure| figure.met)
    }

    /// The figures as a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut table = String::from("| what | measured | wanted | |\n|---|---|---|---|\n");
        for Figure { what, measured, wanted, met } in &self.figures {
            let mark = if *met { "met" } else { "**missed**" };
            // Writing to a String cannot fail.
            let _ = writeln!(table, "| {what} | {measured} | {wanted} | {mark} |");
        }
        table
    }
}

/// The middle value of an odd number of runs.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Replaces what stands between the markers of a section.
pub(crate) fn write_into(file: &Path, section: &str, report: &Report) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let (begin, end) = (format!("<!-- {section} -->"), format!("<!-- /{section} -->"));
    let missing = || format!("{} has no markers {begin} and {end}", file.display());
    let (before, rest) = text.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    let table = report.table();
    let text = format!("{before}{begin}\n{}\n\n{table}{end}{after}", describe());
    std::fs::write(file, text).with_context(|| format!("{}", file.display()))
}
