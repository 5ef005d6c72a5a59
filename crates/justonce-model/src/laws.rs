//! The promises, each a property of the checker.

use stateright::{Model, Property};

/// A model whose moments are judged by the laws.
pub(crate) trait Judged: Model {
    /// Whether a law is kept at this moment.
    fn keeps(&self, state: &Self::State, law: Law) -> bool;
}

macro_rules! laws {
    ($($law:ident: $name:literal,)*) => {
        /// What must hold at every moment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Law {
            $(#[doc = $name] $law,)*
        }

        impl Law {
            /// All laws.
            pub const ALL: &[Self] = &[$(Self::$law),*];

            /// The law in words; the name of the checker's property.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$law => $name,)* }
            }
        }

        pub(crate) fn properties<M: Judged>() -> Vec<Property<M>> {
            vec![$(Property::always($name, |model: &M, state| model.keeps(state, Law::$law)),)*]
        }
    };
}

laws! {
    OneClaimPerFence: "at most one claim is alive per fence",
    LiveLease: "a live lease is honoured: neither begin nor sweep touches it",
    StaleFence: "a stale fence never changes a record",
    OutcomeStays: "a completed outcome never changes, and every duplicate hears it",
    HoldRunsOnce: "under hold no handler runs twice",
    CanEnd: "every operation can still reach an end",
    SameCall: "a repeated begin gets the claim it already has",
    Repeatable: "a repeated step changes nothing and hears the same",
    Answers: "an answer says what happened",
    OwnerSettles: "an owner that nobody superseded can settle",
    Attempts: "every claim counts as an attempt unless it is given back, and their limit holds",
    BackOff: "nobody claims before the back-off is over",
    Cap: "no renewal outlives the cap",
    HandedOver: "a takeover gets the last checkpoint under resume, and none otherwise",
    LateCheckpoint: "a late checkpoint never sets the checkpoint back",
    GivenBack: "what is given back is claimed at once, and nothing before it is forgotten",
    RetentionKeeps: "retention never removes what is in progress or unknown",
    UnknownStays: "what is unknown is not claimed before it is resolved",
    Held: "what lapses under hold is unknown from that moment on, whoever looks first",
    OnlyUnknown: "only what is unknown is resolved",
    EndedOnly: "only what has ended is expired or erased, and only under its own fence",
    Trace: "who resolved an operation, and how they know, can be seen",
    Fingerprint: "one key never serves two different operations",
    Tombstone: "late arrivals are refused while the tombstone lasts",
    Peek: "a peek says what a begin would find, and changes nothing",
}
