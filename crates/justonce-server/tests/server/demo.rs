//! `justonce demo`, as a newcomer runs it: the built binary, its output, its exit code.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The demo, with a directory of its own for everything temporary.
fn demo(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justonce"));
    command.arg("demo").args(arguments).env("TMPDIR", directory);
    command
}

fn run(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), arguments).output().unwrap();
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "the demo removes what it made");
    output
}

/// The figure in the row of the table with this name.
fn figure(text: &str, name: &str) -> u64 {
    let cells = |line: &str| -> Option<(String, u64)> {
        let mut cells = line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty());
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
    };
    let mut rows = text.lines().filter_map(cells);
    let found = rows.find(|(found, _)| found == name);
    found.map(|(_, figure)| figure).ok_or_else(|| format!("no row {name:?} in:\n{text}")).unwrap()
}

#[test]
fn every_payment_is_charged_at_most_once_and_every_acknowledged_one_exactly_once() {
    let output = run(&["--once", "--operations", "60", "--seed", "7"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}\n{notes}");
    assert!(text.contains("--seed 7"), "{text}");
    assert!(text.contains("verdict: PASSED"), "{text}");
    assert!(!text.contains("FAIL "), "{text}");
    assert!(notes.contains("killed with SIGKILL"), "{notes}");
    assert!(notes.contains("up again"), "{notes}");
    let figure = |name| figure(&text, name);
    let (acknowledged, charges) =
        (figure("operations acknowledged"), figure("charges in the ledger"));
    let never = figure("operations never acknowledged");
    assert_eq!(figure("operations"), 60);
    assert_eq!(acknowledged + never, 60);
    assert_eq!(figure("unknown outcomes") + figure("given up by the client"), never);
    assert_eq!(figure("operations charged more than once"), 0);
    assert_eq!(charges, acknowledged + figure("charged, says the ledger"));
    assert!(figure("requests sent") > 120, "{text}");
    assert!(figure("duplicates absorbed") >= figure("answered with a replay"), "{text}");
    assert!(figure("answered with a replay") >= acknowledged, "each was asked for again: {text}");
    assert!(figure("refused as a mismatch") > 0, "{text}");
    assert_eq!(figure("gateway killed with SIGKILL and restarted"), 1);
    assert!(figure("had all requests gone straight to the API") > charges, "{text}");
}

#[test]
fn without_the_gateway_the_verdict_fails() {
    let output = run(&["--once", "--operations", "60", "--seed", "7", "--without-gateway"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("verdict: FAILED"), "{text}");
    assert!(text.contains("FAIL  every operation was charged at most once"), "{text}");
    assert!(figure(&text, "operations charged more than once") > 0, "{text}");
    assert!(figure(&text, "charges in the ledger") > 60, "{text}");
}

#[test]
fn a_gateway_that_cannot_start_is_told_with_its_log() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&["--once", "--operations", "1", "--port", &port]);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("the gateway ended before it listened"), "{notes}");
    assert!(notes.contains("its log:"), "{notes}");
    assert!(notes.contains(&port), "{notes}");
}

/// Starts a demo whose output is a terminal, and returns what is printed there until it says how
/// it is stopped. The terminal stays open with the lines.
fn on_a_terminal(command: &mut Command) -> (Child, Vec<String>, impl Read + use<>) {
    let terminal = openpty(None, None).unwrap();
    let demo = command.stdout(terminal.slave).stderr(Stdio::null()).spawn().unwrap();
    // Drops this side's handle of the terminal: a demo that dies ends it.
    command.stdout(Stdio::null());
    let mut output = BufReader::new(File::from(terminal.master));
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("Ctrl-C")) {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        lines.push(line.trim().to_owned());
    }
    (demo, lines, output)
}

/// What a shell makes of a line.
fn pasted(line: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
    String::from_utf8(output.stdout).unwrap().to_lowercase()
}

#[test]
fn the_curl_lines_work_and_a_signal_stops_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = demo(directory.path(), &["--operations", "5"]);
    let (mut demo, lines, _terminal) = on_a_terminal(&mut command);
    let lines: Vec<_> = lines.into_iter().filter(|line| line.starts_with("curl")).collect();
    let [first, replay, mismatch] = &lines[..] else { panic!("three lines: {lines:?}") };
    let (first, replay, mismatch) = (pasted(first), pasted(replay), pasted(mismatch));
    assert!(first.starts_with("http/1.1 201"), "{first}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    assert!(replay.starts_with("http/1.1 201"), "{replay}");
    assert!(replay.contains("idempotent-replayed: true"), "{replay}");
    let body = |answer: &str| answer.split("\r\n\r\n").nth(1).map(str::to_owned);
    assert!(body(&first).is_some_and(|body| body.contains("\"id\":\"ch_")), "{first}");
    assert_eq!(body(&first), body(&replay));
    assert!(mismatch.starts_with("http/1.1 422"), "{mismatch}");
    assert!(mismatch.contains("key-mismatch"), "{mismatch}");

    kill(Pid::from_raw(demo.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert!(demo.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let gone = pasted(&lines[0]);
    assert_eq!(gone, "", "the gateway has ended");
}

#[test]
fn without_a_terminal_it_ends_after_its_table() {
    let output = run(&["--operations", "5", "--seed", "7"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}\n{notes}");
    assert!(text.contains("verdict: PASSED"), "{text}");
    assert!(!text.contains("curl") && !text.contains("Ctrl-C"), "{text}");
    assert!(notes.contains("no terminal"), "{notes}");
}

#[test]
fn on_a_terminal_it_may_still_end_after_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = demo(directory.path(), &["--once", "--operations", "5", "--seed", "7"]);
    let terminal = openpty(None, None).unwrap();
    let mut demo = command.stdout(terminal.slave).stderr(Stdio::null()).spawn().unwrap();
    // The last handle of this side: with it the terminal ends together with the demo.
    drop(command);
    let mut text = Vec::new();
    // A terminal that nobody writes to any more ends with an error.
    let _ = File::from(terminal.master).read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    assert!(demo.wait().unwrap().success(), "{text}");
    assert!(text.contains("verdict: PASSED") && !text.contains("curl"), "{text}");
}

#[test]
fn a_signal_in_the_middle_stops_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = demo(directory.path(), &["--once", "--operations", "100000"]);
    let mut demo = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let gateway = lines.find_map(|line| line.split("in front of it:").nth(1).map(str::to_owned));
    let gateway = gateway.unwrap();
    assert!(gateway.trim().starts_with("http://127.0.0.1:"), "{gateway}");
    kill(Pid::from_raw(demo.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(pasted(&format!("curl -s {}", gateway.trim())), "", "the gateway has ended");
}

#[test]
fn a_reader_that_goes_away_does_not_hinder_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = demo(directory.path(), &["--once", "--operations", "5", "--seed", "7"]);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((demo.stdout.take(), demo.stderr.take()));
    assert!(demo.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
