//! The three trades: what each does and undoes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the three services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trade {
    /// Reserves an item, and cancels the reservation.
    Inventory,
    /// Charges a card, and refunds it.
    Payment,
    /// Ships a parcel, and recalls it.
    Shipping,
}

impl Trade {
    /// All of them, in the order in which an order needs them.
    pub const ALL: [Self; 3] = [Self::Inventory, Self::Payment, Self::Shipping];

    /// What it does, which is also the path of the request.
    #[must_use]
    pub const fn does(self) -> &'static str {
        match self {
            Self::Inventory => "reserve",
            Self::Payment => "charge",
            Self::Shipping => "ship",
        }
    }

    /// How it undoes that.
    #[must_use]
    pub const fn undoes(self) -> &'static str {
        match self {
            Self::Inventory => "cancel",
            Self::Payment => "refund",
            Self::Shipping => "recall",
        }
    }
}

impl fmt::Display for Trade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inventory => "inventory",
            Self::Payment => "payment",
            Self::Shipping => "shipping",
        })
    }
}
