//! An operator: looks at an operation, and ends what may be ended.

use std::sync::Arc;

use justonce_core::engine::Settlement;
use justonce_core::{
    Fence, Outcome, RecordId, Resolution, Resolve, Resolver, StateName, StoreResult, Why,
};

use crate::history::{Log, Obeyed, Order, OrderKind, What};
use crate::plan::Wish;
use crate::process::Life;

/// An operator in front of one operation.
pub(crate) struct Operator {
    pub(crate) life: Arc<Life>,
    pub(crate) log: Log,
    pub(crate) id: RecordId,
    pub(crate) operation: usize,
}

impl Operator {
    /// Does what the wish and the state of the operation allow.
    pub(crate) async fn act(self, wish: Wish) {
        let Ok(Some(seen)) = self.life.engine.inspect(self.id).await else { return };
        let fence = seen.stored.entry.fence();
        let text = format!("operator with fence {fence}");
        let kind = match (seen.state(), wish) {
            // Whoever may still be alive could act after a release.
            (StateName::Unknown, Wish::Release | Wish::Erase) if self.nobody_calls() => {
                OrderKind::Release
            }
            (StateName::Unknown, Wish::Fail) => OrderKind::Fail(text),
            (StateName::Unknown, _) => OrderKind::Complete(text),
            (StateName::Completed | StateName::Failed, Wish::Expire | Wish::Fail) => {
                OrderKind::Expire
            }
            (StateName::Completed | StateName::Failed | StateName::Tombstone, _) => {
                OrderKind::Erase
            }
            _ => return,
        };
        self.order(fence, kind).await;
    }

    fn nobody_calls(&self) -> bool {
        self.log.open_calls(Some(self.operation)).is_empty()
    }

    /// Gives an order, and writes down what came of it.
    pub(crate) async fn order(&self, fence: Fence, kind: OrderKind) {
        let order = Order {
            process: self.life.process,
            life: self.life.number,
            operation: self.operation,
            fence,
            kind,
        };
        self.log.add(What::Operator { order: order.clone() });
        let result = match self.carried_out(fence, &order.kind).await {
            Ok(Settlement::Stored) => Obeyed::Done,
            Ok(Settlement::Lost(_)) => Obeyed::Refused,
            Err(_) => Obeyed::NotKnown,
        };
        if !self.life.is_dead() {
            self.log.add(What::Obeyed { order, result });
        }
    }

    async fn carried_out(&self, fence: Fence, kind: &OrderKind) -> StoreResult<Settlement> {
        let engine = &self.life.engine;
        let resolution = match kind {
            OrderKind::Expire => return engine.expire(self.id, fence).await,
            OrderKind::Erase => return engine.erase(self.id, fence).await,
            OrderKind::Complete(text) => Resolution::Complete(Outcome::bytes(text.clone())),
            OrderKind::Fail(text) => Resolution::Fail(Outcome::bytes(text.clone())),
            OrderKind::Release => Resolution::Release,
        };
        let (by, why) = (Resolver::operator("operator"), Why::new("it was drawn"));
        engine.resolve(self.id, fence, Resolve { resolution, by, why }).await
    }
}
