//! How far long work is.

use std::io::IsTerminal;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use justonce::embedded::backup::Progress;

/// In how many steps progress is told where no bar can be drawn.
const STEPS: u64 = 4;
const TEMPLATE: &str = "{msg} {bar:32} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";

/// A bar on a terminal, lines elsewhere. It goes to the standard error.
pub(super) struct Meter {
    bar: ProgressBar,
    is_terminal: bool,
    what: &'static str,
    told: u64,
}

impl Meter {
    /// Begins with nothing done.
    pub(super) fn start(what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar, is_terminal, what, told: 0 }
    }

    /// Shows how much is done.
    pub(super) fn show(&mut self, Progress { done, total, .. }: Progress) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        let step = done.saturating_mul(STEPS) / total.max(1);
        if !self.is_terminal && step > self.told {
            eprintln!("{}: {} of {}", self.what, HumanBytes(done), HumanBytes(total));
            self.told = step;
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
