//! What is shown while the client is at work.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;

use crate::report::note;

/// How often the bar is drawn without news.
const TICK: Duration = Duration::from_millis(100);
/// In how many steps progress is told where no bar can be drawn.
const STEPS: u32 = 4;
const TEMPLATE: &str = "{spinner} {bar:32} {pos}/{len} operations settled, {elapsed} {msg}";

/// A bar on a terminal, lines elsewhere. It goes to the standard error: the table has the output.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    operations: u32,
}

impl Progress {
    /// Begins with nothing settled.
    pub(crate) fn start(operations: u32) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(operations.into()), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar, is_terminal, operations }
    }

    /// Something worth a line of its own.
    pub(crate) fn note(&self, text: &str) {
        if self.is_terminal {
            self.bar.println(text);
        } else {
            note(text);
        }
    }

    /// Shows how many are settled, until all are.
    pub(crate) async fn follow(&self, mut settled: watch::Receiver<u32>) {
        let mut told = 0;
        loop {
            let now = *settled.borrow_and_update();
            self.bar.set_position(now.into());
            let step = now.saturating_mul(STEPS) / self.operations.max(1);
            if !self.is_terminal && step > told {
                self.note(&format!("{now} of {} operations settled", self.operations));
                told = step;
            }
            if now >= self.operations || settled.changed().await.is_err() {
                break;
            }
        }
    }

    /// Clears the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
