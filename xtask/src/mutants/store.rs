//! The stores whose scripts are changed.

use clap::ValueEnum;

use super::migrations::MIGRATIONS;
use super::mutant::Mutant;
use super::postgres::STATEMENTS;
use super::redis::SCRIPTS;
use super::redis_parts::PARTS;

/// A store whose rules are repeated in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// Its scripts in Lua
    Redis,
    /// Its statements and functions in SQL
    Postgres,
}

impl Store {
    pub(super) const ALL: [Self; 2] = [Self::Redis, Self::Postgres];

    /// What it is called in directories.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// Its crate.
    pub(super) fn package(self) -> String {
        format!("justonce-{}", self.name())
    }

    /// The directory of its crate, from the root.
    pub(super) fn directory(self) -> String {
        format!("crates/{}", self.package())
    }

    /// The directories of its scripts, from that of its crate.
    pub(super) const fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["lua", "lua/parts"],
            Self::Postgres => &["sql", "migrations"],
        }
    }

    /// Tests that compare the text of files and would notice each mutant: parts of their names.
    pub(super) const fn tests_of_text(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &[],
            Self::Postgres => &["released_steps_never_change"],
        }
    }

    pub(super) fn mutants(self) -> Vec<Mutant> {
        match self {
            Self::Redis => [SCRIPTS, PARTS].concat(),
            Self::Postgres => [STATEMENTS, MIGRATIONS].concat(),
        }
    }
}
