//! The three services, as an order service sees them.

use std::io;
use std::net::SocketAddr;

use clap::Args;
use http::StatusCode;
use justonce::Key;

use crate::call::{Heard, post};
use crate::order::Order;
use crate::service::{Said, Undo};
use crate::stage::Stage;
use crate::trade::Trade;

/// Where the three services are.
#[derive(Clone, Copy, Debug, Args)]
pub struct Addresses {
    /// Where the inventory is
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9101")]
    pub inventory: SocketAddr,
    /// Where the payment is
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9102")]
    pub payment: SocketAddr,
    /// Where the shipping is
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9103")]
    pub shipping: SocketAddr,
}

impl Addresses {
    /// Where one of them is.
    #[must_use]
    pub const fn of(&self, trade: Trade) -> SocketAddr {
        match trade {
            Trade::Inventory => self.inventory,
            Trade::Payment => self.payment,
            Trade::Shipping => self.shipping,
        }
    }
}

/// The three services, and where the program may die around each call.
#[derive(Clone, Debug)]
pub struct Services {
    /// Where they are.
    pub addresses: Addresses,
    /// Where the program may die.
    pub stage: Stage,
}

impl Services {
    /// Asks a service to do its part, under a key.
    ///
    /// # Errors
    ///
    /// If there is no answer, or none that says what became of it: it may have been done.
    pub async fn act(&self, trade: Trade, order: &Order, key: &Key) -> io::Result<Said> {
        self.stage.reached(format!("before {}", trade.does())).await;
        let heard = post(self.addresses.of(trade), trade.does(), key.as_str(), order).await?;
        let said = match heard.status {
            StatusCode::CREATED | StatusCode::UNPROCESSABLE_ENTITY => heard.json()?,
            _ => return Err(unclear(trade.does(), &heard)),
        };
        self.stage.reached(format!("after {}", trade.does())).await;
        Ok(said)
    }

    /// Asks a service to undo what it did under the key of the step, if it did.
    ///
    /// # Errors
    ///
    /// If there is no answer, or none that says that it is undone.
    pub async fn undo(
        &self,
        trade: Trade,
        order: &Order,
        step_key: &Key,
        key: &Key,
    ) -> io::Result<()> {
        self.stage.reached(format!("before {}", trade.undoes())).await;
        let undo = Undo { order: order.order.clone(), undoes: step_key.as_str().to_owned() };
        let heard = post(self.addresses.of(trade), trade.undoes(), key.as_str(), &undo).await?;
        if heard.status != StatusCode::OK {
            return Err(unclear(trade.undoes(), &heard));
        }
        self.stage.reached(format!("after {}", trade.undoes())).await;
        Ok(())
    }
}

fn unclear(what: &str, heard: &Heard) -> io::Error {
    io::Error::other(format!("{what}: {} says nothing about it", heard.status))
}
