//! How the operations of one route are driven on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use justonce::http::{Resent, can_resend};
use justonce::saga::{DriveEnd, Driver};
use justonce::{Checkpoint, Engine, Operation, Scope, ScopeError};

use crate::stack::Stack;

/// The operations of one route, sent again through the stack of the moment.
pub(super) struct RouteDriver {
    pub(super) route: String,
    pub(super) stack: Arc<ArcSwap<Stack>>,
}

impl Driver for RouteDriver {
    fn name(&self) -> &str {
        &self.route
    }

    /// A route's keys live in the scope of its name only.
    fn scope(&self) -> Result<Scope, ScopeError> {
        Scope::builder().route(&self.route).build()
    }

    fn retries(&self) -> bool {
        true
    }

    fn fits(&self, point: &Checkpoint) -> Result<(), String> {
        can_resend(point)
    }

    fn drive(
        &self,
        _: &Engine,
        operation: Operation,
    ) -> Pin<Box<dyn Future<Output = DriveEnd> + Send>> {
        let stack = Stack::clone(&self.stack.load());
        Box::pin(async move {
            match stack.resend(operation).await {
                Resent::Ended => DriveEnd::Ended,
                Resent::Skipped => DriveEnd::Left,
                Resent::Failed(why) => DriveEnd::Trouble(why),
                _ => DriveEnd::NotYet,
            }
        })
    }
}
