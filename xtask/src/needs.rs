//! What tests and benchmarks need from the machine: a row for each need.

/// Something the machine must have.
#[derive(Debug)]
pub(crate) struct Need {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it is for, so that nobody installs something without knowing the reason.
    pub(crate) why: &'static str,
    /// A command that succeeds if, and only if, the thing is there. Words in braces are
    /// [filled](crate::services::filled).
    pub(crate) probe: &'static [&'static str],
    pub(crate) install: Install,
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
        why: "the benchmarks build the SQLite they compare with",
        probe: &["cc", "--version"],
        install: Install::Apt("build-essential"),
    },
    Need {
        name: "cargo-nextest",
        why: "it runs each test in its own process",
        probe: &["cargo", "nextest", "--version"],
        install: Install::Cargo("cargo-nextest"),
    },
    Need {
        name: "curl with HTTP/2",
        why: "the gateway is tested with clients that we did not write",
        probe: &["sh", "-c", "curl --version | grep -q HTTP2"],
        install: Install::Apt("curl"),
    },
    Need {
        name: "Python with venv",
        why: "the SDK of Stripe is installed into an environment of its own",
        probe: &["python3", "-c", "import ensurepip, venv"],
        install: Install::Apt("python3-venv"),
    },
    Need {
        name: "the SDK of Stripe",
        why: "its own retries are sent through the gateway",
        probe: &[PYTHON, "-c", "import stripe; assert stripe.VERSION == '16.1.0'"],
        install: Install::Python("stripe==16.1.0"),
    },
    Need {
        name: "Redis",
        why: "the store is tested on private servers, and measured beside redis-benchmark",
        probe: &["sh", "-c", "redis-server --version && redis-benchmark --version"],
        install: Install::Apt("redis-server"),
    },
    Need {
        name: "Redis Sentinel",
        why: "failovers are tested with it",
        probe: &["sh", "-c", "command -v redis-sentinel"],
        install: Install::Apt("redis-sentinel"),
    },
    Need {
        name: "PostgreSQL",
        why: "the store is tested on private servers, and measured beside pgbench",
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
        // Debian keeps it out of the usual places for programs.
        probe: &["sh", "-c", "PATH=$PATH:/usr/sbin pgbouncer --version"],
        install: Install::Apt("pgbouncer"),
    },
    Need {
        name: "libfaketime",
        why: "gateways are tested with clocks that are wrong",
        probe: &["sh", "-c", "ls /usr/lib/*/faketime/libfaketime.so.1"],
        install: Install::Apt("libfaketime"),
    },
    Need {
        name: "setpriv",
        why: "private servers are started with it, so that none outlives its test",
        probe: &["setpriv", "--version"],
        install: Install::Apt("util-linux"),
    },
    Need {
        name: "promtool",
        why: "it checks the names and types of the gateway's metrics",
        probe: &["promtool", "--version"],
        install: Install::Apt("prometheus"),
    },
    Need {
        name: "nginx",
        why: "the benchmark compares the gateway with it",
        probe: &["nginx", "-v"],
        install: Install::Apt("nginx-light"),
    },
    Need {
        name: "wrk",
        why: "it loads the gateway and nginx in the benchmark",
        // It has no option with which it succeeds.
        probe: &["sh", "-c", "command -v wrk"],
        install: Install::Apt("wrk"),
    },
];

/// What only the benchmark of sagas needs: it is large, and no test wants it.
pub(crate) const FOR_SAGAS: &[Need] =
    &[npm("the server of Restate, which sagas are measured beside, comes with it")];

/// What only other versions of the servers need.
pub(crate) const FOR_VERSIONS: &[Need] = &[npm("other versions of PostgreSQL come with it")];

const fn npm(why: &'static str) -> Need {
    Need { name: "npm", why, probe: &["npm", "--version"], install: Install::Apt("npm") }
}
