//! What was measured, what was wanted, and whether it was met.

use std::fmt::Write as _;

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
