//! What clients order, and what they hear.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trade::Trade;

/// What a client orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The client's name for it.
    pub order: String,
    /// What to send. `sold-out` is.
    pub item: String,
    /// Who pays. `declined` is.
    pub card: String,
    /// Where to send it. `nowhere` cannot be reached.
    pub address: String,
}

impl Order {
    /// Why a trade will never do its part of this, if so.
    #[must_use]
    pub fn refusal_by(&self, trade: Trade) -> Option<&'static str> {
        match trade {
            Trade::Inventory if self.item == "sold-out" => Some("the item is sold out"),
            Trade::Payment if self.card == "declined" => Some("the card was declined"),
            Trade::Shipping if self.address == "nowhere" => Some("there is no such address"),
            _ => None,
        }
    }
}

/// What a client hears of its order, once and for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Reply {
    /// Everything was done.
    Done {
        /// The order.
        order: String,
        /// Where it stands in each ledger.
        entries: Entries,
    },
    /// Everything that was done was undone.
    RolledBack {
        /// The order.
        order: String,
        /// What could not be done.
        step: String,
        /// Why it could not.
        why: String,
    },
}

/// The entries that were made for an order, by whose ledger they are in.
pub type Entries = BTreeMap<Trade, u64>;
