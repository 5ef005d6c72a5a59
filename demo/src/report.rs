//! What is shown at the end.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use crate::exchange::PAYMENTS;
use crate::seen::Counts;
use crate::verdict::{Check, Figures, Verdict};

/// How many keys of offenders are shown for one check.
const OFFENDERS_SHOWN: usize = 10;

/// One run of the client, counted and judged.
#[derive(Debug)]
pub(crate) struct Report {
    /// What the client counted.
    pub(crate) counts: Counts,
    /// How many requests reached the API.
    pub(crate) reached: u64,
    /// How often the same requests would have charged if all of them had.
    pub(crate) straight: u64,
    /// How often the gateway was killed.
    pub(crate) kills: u64,
    /// Whether there was a gateway.
    pub(crate) is_guarded: bool,
    pub(crate) elapsed: Duration,
    pub(crate) verdict: Verdict,
}

impl Report {
    fn rows(&self) -> Vec<(&'static str, u64)> {
        let Counts { requests, whole, cut, lost, replays, .. } = self.counts;
        let Counts { in_flight, mismatches, unknown: told_unknown, .. } = self.counts;
        let Figures { operations, charges, charged_twice, acknowledged, .. } = self.verdict.figures;
        let Figures { unknown_charged, unknown_not_charged, given_up, .. } = self.verdict.figures;
        let unknown = unknown_charged + unknown_not_charged;
        let mut rows = vec![
            ("operations", operations),
            ("requests sent", requests),
            ("  cut off by the client", cut),
            ("  lost when a connection broke", lost),
            ("requests that reached the API", self.reached),
            ("duplicates absorbed", whole.saturating_sub(self.reached)),
            ("  answered with a replay", replays),
            ("  told that the first is in flight", in_flight),
            ("  told that the outcome is unknown", told_unknown),
            ("  refused as a mismatch", mismatches),
            ("charges in the ledger", charges),
            ("  operations charged more than once", charged_twice),
        ];
        if self.is_guarded {
            rows.push(("  had all requests gone straight to the API", self.straight));
            rows.push(("gateway killed with SIGKILL and restarted", self.kills));
        }
        rows.extend([
            ("operations acknowledged", acknowledged),
            ("operations never acknowledged", unknown + given_up),
            ("  unknown outcomes", unknown),
            ("    charged, says the ledger", unknown_charged),
            ("    not charged, says the ledger", unknown_not_charged),
            ("  given up by the client", given_up),
        ]);
        rows
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let seconds = format!("{:.1} s", self.elapsed.as_secs_f64());
        table.set_header(["what happened", seconds.as_str()]);
        for (name, value) in self.rows() {
            table.add_row([name.to_owned(), value.to_string()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "\n{table}\n")?;
        for check in &self.verdict.checks {
            write_check(f, check)?;
        }
        let verdict = if self.verdict.passed() { "PASSED" } else { "FAILED" };
        writeln!(f, "verdict: {verdict}")?;
        if self.is_guarded { f.write_str(UNKNOWN) } else { Ok(()) }
    }
}

fn write_check(f: &mut fmt::Formatter<'_>, check: &Check) -> fmt::Result {
    let word = if check.holds() { "  ok" } else { "FAIL" };
    writeln!(f, "{word}  {} ({})", check.claim, check.detail)?;
    for key in check.offenders.iter().take(OFFENDERS_SHOWN) {
        writeln!(f, "        {key}")?;
    }
    match check.offenders.len().checked_sub(OFFENDERS_SHOWN) {
        Some(more @ 1..) => writeln!(f, "        and {more} more"),
        _ => Ok(()),
    }
}

const UNKNOWN: &str = "
Unknown: the API or the gateway broke down after the request had been sent, so nobody can tell
whether it charged. It is never sent again; an operator looks at the ledger and resolves it.";

/// Prints a line. A closed output is not an error: `println!` would panic before everything is
/// stopped.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// The same for notes.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// How to try it by hand.
pub(crate) fn print_invitation(at: SocketAddr, ledger: &Path) {
    let curl = |amount: u32| {
        format!(
            "curl -i http://{at}{PAYMENTS} -H 'Content-Type: application/json' \
             -H 'Idempotency-Key: my-first-payment' \
             -d '{{\"amount\": {amount}, \"to\": \"alice\"}}'"
        )
    };
    say("\nTry it yourself. The first call, its replay, and a mismatch:\n");
    for amount in [500, 500, 700] {
        say(format_args!("  {}", curl(amount)));
    }
    say(format_args!("\nThe ledger is {}.", ledger.display()));
    say("The gateway and the API stay up until you stop everything with Ctrl-C.");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use justonce_testkit::history::History;

    use super::*;
    use crate::plan::Payment;
    use crate::seen::Seen;
    use crate::verdict::judge;

    #[test]
    fn a_failure_names_its_keys_but_not_without_end() {
        let all: Vec<Seen> = (0..12).map(|number| Seen::new(&Payment::new(7, number))).collect();
        let charges: BTreeMap<_, _> = all.iter().map(|seen| (seen.key.clone(), 2)).collect();
        let mut history = History::default();
        for seen in all.iter().chain(&all) {
            let _ = history.asked(&seen.key);
            history.effect(&seen.key, "charged");
        }
        let report = Report {
            counts: Counts::default(),
            reached: 24,
            straight: 24,
            kills: 1,
            is_guarded: true,
            elapsed: Duration::from_millis(1234),
            verdict: judge(&all, &charges, &history),
        };
        let text = report.to_string();
        assert!(text.contains("verdict: FAILED"), "{text}");
        assert!(
            text.contains("FAIL  every operation was charged at most once (0 of 12)"),
            "{text}"
        );
        assert!(text.contains(all[0].key.as_str()), "{text}");
        assert!(text.contains("and 2 more"), "{text}");
        assert!(text.contains("1.2 s"), "{text}");
    }
}
