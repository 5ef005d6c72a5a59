//! What tests and benchmarks need from the machine, and which crates' tests need it.

/// Something the machine must have.
#[derive(Debug)]
pub(crate) struct Need {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) why: &'static str,
    pub(crate) used_by: UsedBy,
    /// A command that succeeds if, and only if, the thing is there. Words in braces are
    /// [filled](crate::services::filled).
    pub(crate) probe: &'static [&'static str],
    pub(crate) install: Install,
}

/// What a need is installed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedBy {
    /// The tests of every crate.
    AllTests,
    /// The tests of these crates, named without `justonce-`.
    TestsOf(&'static [&'static str]),
    /// A benchmark, or the tests on another version of a server.
    NoTest,
}

impl UsedBy {
    /// Whether the tests of these crates need it; an empty list stands for all crates.
    pub(crate) fn tests_of(self, crates: &[&str]) -> bool {
        match self {
            Self::AllTests => true,
            Self::TestsOf(users) => {
                crates.is_empty() || crates.iter().any(|name| users.contains(name))
            }
            Self::NoTest => false,
        }
    }
}

/// How a need is installed.
#[derive(Debug)]
pub(crate) enum Install {
    /// From a Debian package.
    Apt(&'static str),
    /// With `cargo install --locked`.
    Cargo(&'static str),
    /// With pip, into a Python environment of our own: a package and its version.
    Python(&'static str),
    /// With npm, among the other versions: an alias, and a package and its version.
    Npm(&'static str, &'static str),
    /// With pip, into a directory of its own among the other versions: its name, and a package and
    /// its version.
    Wheel(&'static str, &'static str),
    /// From Debian packages, unpacked into a directory of its own among the other versions: its
    /// name, and the packages.
    Unpacked(&'static str, &'static [&'static str]),
}

/// Stands for the Python of our own environment, which has another path for every user.
pub(crate) const PYTHON: &str = "{python}";
/// Stands for where other versions of the servers are kept.
pub(crate) const VERSIONS: &str = "{versions}";
/// Stands for the processor, as it is called by the kernel.
pub(crate) const MACHINE: &str = "{machine}";
/// Stands for the processor, as it is called by npm.
pub(crate) const CPU: &str = "{cpu}";

/// All needs, in the order of installation: what is compiled comes after the compiler.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        name: "a C compiler",
        why: "some libraries are written in C",
        used_by: UsedBy::AllTests,
        probe: &["cc", "--version"],
        install: Install::Apt("build-essential"),
    },
    Need {
        name: "cargo-nextest",
        why: "it runs each test in its own process",
        used_by: UsedBy::AllTests,
        probe: &["cargo", "nextest", "--version"],
        install: Install::Cargo("cargo-nextest"),
    },
    Need {
        name: "curl with HTTP/2",
        why: "the gateway is tested with clients that we did not write",
        used_by: UsedBy::TestsOf(&["server"]),
        probe: &["sh", "-c", "curl --version | grep -q HTTP2"],
        install: Install::Apt("curl"),
    },
    Need {
        name: "Python with venv",
        why: "the SDK of Stripe is installed into an environment of its own",
        used_by: UsedBy::TestsOf(&["server"]),
        probe: &["python3", "-c", "import ensurepip, venv"],
        install: Install::Apt("python3-venv"),
    },
    Need {
        name: "the SDK of Stripe",
        why: "its own retries are sent through the gateway",
        used_by: UsedBy::TestsOf(&["server"]),
        probe: &[PYTHON, "-c", "import stripe; assert stripe.VERSION == '16.1.0'"],
        install: Install::Python("stripe==16.1.0"),
    },
    Need {
        name: "Redis",
        why: "the store is tested on private servers, and measured beside redis-benchmark",
        used_by: UsedBy::TestsOf(&["redis", "saga", "server"]),
        probe: &["sh", "-c", "redis-server --version && redis-benchmark --version"],
        install: Install::Apt("redis-server"),
    },
    Need {
        name: "Redis Sentinel",
        why: "failovers are tested with it",
        used_by: UsedBy::TestsOf(&["redis", "server"]),
        probe: &["sh", "-c", "command -v redis-sentinel"],
        install: Install::Apt("redis-sentinel"),
    },
    Need {
        name: "PostgreSQL",
        why: "the store is tested on private servers, and measured beside pgbench",
        used_by: UsedBy::TestsOf(&["examples", "orders", "postgres", "redis", "saga", "server"]),
        // Debian keeps the server's programs out of the usual places for programs.
        probe: &[
            "sh",
            "-c",
            "ls /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql/*/bin/pgbench",
        ],
        install: Install::Apt("postgresql"),
    },
    Need {
        name: "PgBouncer",
        why: "the store is tested behind it, in both of the modes that people use",
        used_by: UsedBy::TestsOf(&["postgres"]),
        // Debian keeps it out of the usual places for programs.
        probe: &["sh", "-c", "PATH=$PATH:/usr/sbin pgbouncer --version"],
        install: Install::Apt("pgbouncer"),
    },
    Need {
        name: "libfaketime",
        why: "gateways are tested with clocks that are wrong",
        used_by: UsedBy::TestsOf(&["server"]),
        probe: &["sh", "-c", "ls /usr/lib/*/faketime/libfaketime.so.1"],
        install: Install::Apt("libfaketime"),
    },
    Need {
        name: "setpriv and unshare",
        why: "they end private servers with their test, and mount small disks",
        used_by: UsedBy::TestsOf(&[
            "embedded", "examples", "orders", "postgres", "redis", "saga", "server",
        ]),
        probe: &["sh", "-c", "setpriv --version && unshare --version"],
        install: Install::Apt("util-linux"),
    },
    Need {
        name: "strace",
        why: "it records what the embedded store asks of the disk, for the power cut test",
        used_by: UsedBy::TestsOf(&["powercut"]),
        probe: &["strace", "--version"],
        install: Install::Apt("strace"),
    },
    Need {
        name: "promtool",
        why: "it checks the names and types of the gateway's metrics",
        used_by: UsedBy::TestsOf(&["server"]),
        probe: &["promtool", "--version"],
        install: Install::Apt("prometheus"),
    },
    Need {
        name: "nginx",
        why: "the benchmark compares the gateway with it",
        used_by: UsedBy::NoTest,
        probe: &["nginx", "-v"],
        install: Install::Apt("nginx-light"),
    },
    Need {
        name: "wrk",
        why: "it loads the gateway and nginx in the benchmark",
        used_by: UsedBy::NoTest,
        // It has no option with which it succeeds.
        probe: &["sh", "-c", "command -v wrk"],
        install: Install::Apt("wrk"),
    },
];

/// What only the benchmark of sagas needs.
pub(crate) const FOR_SAGAS: &[Need] =
    &[npm("the server of Restate, which sagas are measured beside, comes with it")];

/// What only the check of a release needs.
pub(crate) const FOR_RELEASES: &[Need] = &[Need {
    name: "cargo-deny",
    why: "it checks licences, sources and duplicates of all dependencies",
    used_by: UsedBy::NoTest,
    probe: &["cargo", "deny", "--version"],
    install: Install::Cargo("cargo-deny@0.20.2"),
}];

/// What only other versions of the servers need.
pub(crate) const FOR_VERSIONS: &[Need] = &[npm("other versions of PostgreSQL come with it")];

const fn npm(why: &'static str) -> Need {
    Need {
        name: "npm",
        why,
        used_by: UsedBy::NoTest,
        probe: &["npm", "--version"],
        install: Install::Apt("npm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(crates: &[&str]) -> Vec<&'static str> {
        let needs = NEEDS.iter().filter(|need| need.used_by.tests_of(crates));
        needs.map(|need| need.name).collect()
    }

    #[test]
    fn a_crate_gets_only_what_its_tests_need() {
        assert_eq!(needed(&["core"]), ["a C compiler", "cargo-nextest"]);
        assert_eq!(needed(&["http"]), needed(&["core"]));
        let of_postgres = needed(&["postgres"]);
        assert!(of_postgres.contains(&"PgBouncer") && !of_postgres.contains(&"Redis"));
        let of_both = needed(&["core", "redis"]);
        assert!(of_both.contains(&"Redis Sentinel") && of_both.contains(&"PostgreSQL"));
    }

    #[test]
    fn all_tests_together_need_what_any_of_them_does_and_nothing_of_the_benchmarks() {
        let all = needed(&[]);
        assert!(all.contains(&"promtool") && all.contains(&"PgBouncer"));
        assert!(!all.contains(&"nginx") && !all.contains(&"wrk"));
    }
}
