//! Each line of the contract, on each store.
//!
//! A directory and a private Redis are there at once, so each line has its own and is a test of
//! its own. A private PostgreSQL takes a second: the lines of one file share one, each in a schema
//! of its own, one after the other in one test.

/// Makes tests of these functions on each store that a gateway can be asked to use.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::gateway::contract::place::Place;

            #[test]
            fn embedded() {
                super::$name(&Place::embedded());
            }

            #[test]
            fn redis() {
                super::$name(&Place::redis());
            }
        })*

        #[test]
        fn every_line_on_postgres() {
            let server = crate::gateway::contract::place::started_postgres();
            $(super::every::line(stringify!($name), |line| {
                $name(&Place::postgres(&server, line));
            });)*
        }
    };
}

/// The same on each store that several gateways can share, and in tiers.
macro_rules! on_shared_stores {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::gateway::contract::place::Place;

            #[test]
            fn redis() {
                super::$name(&Place::redis());
            }
        })*

        #[test]
        fn every_shared_line_on_postgres() {
            let server = crate::gateway::contract::place::started_postgres();
            $(super::every::line(stringify!($name), |line| {
                $name(&Place::postgres(&server, line));
            });)*
        }

        #[test]
        fn every_shared_line_in_tiers() {
            let server = crate::gateway::contract::place::started_postgres();
            $(super::every::line(stringify!($name), |line| {
                $name(&Place::tiered(&server, line));
            });)*
        }
    };
}

pub(super) use {on_every_store, on_shared_stores};

/// Runs a line and says which, so that a failure can be told from others.
pub(super) fn line(name: &str, run: impl FnOnce(&str)) {
    eprintln!("{name}");
    run(name);
}
