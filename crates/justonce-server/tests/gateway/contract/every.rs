//! Each line of the contract, on each store.

/// Makes a test of each of these functions on each store that a gateway can be asked to use. Each
/// gets a store of its own.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::contract::place::Place;

            #[test]
            fn embedded() {
                super::$name(&Place::embedded());
            }

            #[test]
            fn redis() {
                super::$name(&Place::redis());
            }

            #[test]
            fn postgres() {
                super::$name(&Place::postgres());
            }
        })*
    };
}

/// The same on each store that several gateways can share.
macro_rules! on_shared_stores {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::contract::place::Place;

            #[test]
            fn redis() {
                super::$name(&Place::redis());
            }

            #[test]
            fn postgres() {
                super::$name(&Place::postgres());
            }

            #[test]
            fn tiered() {
                super::$name(&Place::tiered());
            }
        })*
    };
}

pub(super) use {on_every_store, on_shared_stores};
