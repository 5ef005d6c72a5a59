//! The protocol on a Redis store.

use justonce_core::codec::note_words;
use justonce_core::store::{Records, Stored};
use justonce_core::{
    Action, Answer, Begin, Checkpoint, Failure, FailureKind, Fence, HowResolved, NoteKind, Outcome,
    RecordId, Resolution, Resolve, Step, StoreResult,
};
use redis::Value;

use crate::codec::{self, Claiming};
use crate::error::{Trouble, strange};
use crate::layout::bucket;
use crate::nodes::Sent;
use crate::reply::{self, Answered};
use crate::scripts::Lua;
use crate::store::RedisStore;
use crate::together::Asked;

impl Records for RedisStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.checks.go_on();
        if let Some(together) = &self.together
            && let Some(asked) = Asked::new(step)
            && let Some(value) = together.apply(asked).await?
        {
            return reply::shared(step, &value);
        }
        // Large, and where steps go together rare.
        Box::pin(self.apply_alone(step)).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let mut command = redis::cmd("GET");
        command.arg(self.layout().record(id));
        let sent = self.nodes.send(bucket(id), 0, &command).await.map_err(Trouble::into_error)?;
        match sent.value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(codec::stored(id, &bytes)?)),
            _ => Err(strange("a record")),
        }
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<()> {
        let place = self.subscription.enter(&self.waiters, *id, fence).await?;
        let keys = [self.layout().record(id)];
        let (moment, fence) = (self.moment(), fence.get().to_be_bytes());
        let sent = self.run(id, &self.scripts.watch, &keys, &[moment.as_bytes(), &fence]).await?;
        match sent.value {
            Value::Int(0) => Ok(()),
            Value::Int(_) => {
                place.woken().await;
                Ok(())
            }
            _ => Err(strange("a wait")),
        }
    }
}

impl RedisStore {
    async fn apply_alone(&self, step: &Step) -> StoreResult<Answer> {
        let (id, scripts) = (&step.id, &self.scripts);
        match &step.action {
            Action::Begin(begin) => self.begin(id, begin, &step.action).await,
            Action::Peek(_) => self.peek(id, &step.action).await,
            Action::Complete(fence, outcome) => self.complete(id, *fence, outcome).await,
            Action::Fail(fence, failure) => self.fail(id, *fence, failure).await,
            Action::Release(fence) => self.write(id, &scripts.release, *fence, &[]).await,
            Action::Renew(fence) => self.write(id, &scripts.renew, *fence, &[]).await,
            Action::Checkpoint(fence, point) => self.checkpoint(id, *fence, point).await,
            Action::Abandon(fence, why) => {
                let reason = why.reason.as_str().as_bytes();
                let cause = why.cause.as_ref().map(|cause| cause.as_str().as_bytes());
                let words: Vec<&[u8]> = [Some(reason), cause].into_iter().flatten().collect();
                self.write(id, &scripts.abandon, *fence, &words).await
            }
            Action::Resolve(fence, resolve) => self.resolve(id, *fence, resolve).await,
            Action::Expire(fence) => self.write(id, &scripts.expire, *fence, &[]).await,
            Action::Erase(fence) => self.write(id, &scripts.erase, *fence, &[]).await,
            Action::Sweep => self.sweep_one(id).await,
        }
    }

    async fn begin(&self, id: &RecordId, begin: &Begin, action: &Action) -> StoreResult<Answer> {
        let Claiming { terms, body, point } = Claiming::new(id, begin);
        let layout = self.layout();
        let keys = [layout.record(id), layout.index(bucket(id)), self.nodes.fence(bucket(id))];
        let moment = self.moment();
        let arguments = [&terms, &*body, &point, self.confirms(), moment.as_bytes()];
        let arguments = without_empty_end(&arguments);
        let sent = self.run(id, &self.scripts.begin, &keys, arguments).await?;
        let Answered { answer, wrote } = reply::begun(id, begin, action, &sent.value)?;
        if wrote {
            self.confirmed(id, &sent).await?;
        }
        Ok(answer)
    }

    async fn complete(
        &self,
        id: &RecordId,
        fence: Fence,
        outcome: &Outcome,
    ) -> StoreResult<Answer> {
        let completion = codec::completion(fence, outcome);
        let keys = [self.layout().record(id), self.layout().index(bucket(id))];
        let moment = self.moment();
        let arguments = [&*completion, self.confirms(), moment.as_bytes()];
        let arguments = without_empty_end(&arguments);
        let sent = self.run(id, &self.scripts.complete, &keys, arguments).await?;
        self.answered(id, sent).await
    }

    async fn peek(&self, id: &RecordId, action: &Action) -> StoreResult<Answer> {
        let keys = [self.layout().record(id)];
        let sent = self.run(id, &self.scripts.peek, &keys, &[self.moment().as_bytes()]).await?;
        Ok(reply::peeked(id, action, &sent.value)?.answer)
    }

    async fn fail(&self, id: &RecordId, fence: Fence, failure: &Failure) -> StoreResult<Answer> {
        let kind: &[u8] = match failure.kind {
            FailureKind::Passing => b"passing",
            FailureKind::Permanent => b"permanent",
        };
        let (outcome, jitter) = (codec::outcome(&failure.outcome), failure.jitter.to_string());
        let arguments = [outcome.as_slice(), kind, jitter.as_bytes()];
        self.write(id, &self.scripts.fail, fence, &arguments).await
    }

    async fn checkpoint(
        &self,
        id: &RecordId,
        fence: Fence,
        point: &Checkpoint,
    ) -> StoreResult<Answer> {
        let (number, bytes) = (point.number().to_string(), codec::checkpoint(point));
        let arguments = [number.as_bytes(), bytes.as_slice(), point.name().as_bytes()];
        self.write(id, &self.scripts.checkpoint, fence, &arguments).await
    }

    async fn resolve(&self, id: &RecordId, fence: Fence, resolve: &Resolve) -> StoreResult<Answer> {
        let empty = Outcome::empty();
        let (how, outcome) = match &resolve.resolution {
            Resolution::Complete(outcome) => (HowResolved::Completed, outcome),
            Resolution::Fail(outcome) => (HowResolved::Failed, outcome),
            Resolution::Release => (HowResolved::Released, &empty),
        };
        let note = NoteKind::Resolved(resolve.by.clone(), how, resolve.why.clone());
        let (_, words) = note_words(&note);
        let [who, name, how, why] = words.as_slice() else {
            return Err(strange("a resolution"));
        };
        let outcome = codec::outcome(outcome);
        let words = [how, who, name, why].map(|word| word.as_bytes());
        let [how, who, name, why] = words;
        self.write(id, &self.scripts.resolve, fence, &[&outcome, how, who, name, why]).await
    }

    /// A write by an owner, or by an operator.
    async fn write(
        &self,
        id: &RecordId,
        script: &Lua,
        fence: Fence,
        rest: &[&[u8]],
    ) -> StoreResult<Answer> {
        let keys = [self.layout().record(id), self.layout().index(bucket(id))];
        let (moment, fence) = (self.moment(), fence.get().to_be_bytes());
        let mut arguments = Vec::with_capacity(3 + rest.len());
        arguments.extend_from_slice(&[moment.as_bytes(), self.confirms(), &fence]);
        arguments.extend_from_slice(rest);
        let sent = self.run(id, script, &keys, &arguments).await?;
        self.answered(id, sent).await
    }

    /// The answer to a write, once enough replicas have it.
    async fn answered(&self, id: &RecordId, sent: Sent) -> StoreResult<Answer> {
        let Answered { answer, wrote } = reply::written(id, &sent.value)?;
        if wrote {
            self.confirmed(id, &sent).await?;
        }
        Ok(answer)
    }

    /// Does what time demands of one record.
    pub(crate) async fn sweep_one(&self, id: &RecordId) -> StoreResult<Answer> {
        let keys = [self.layout().record(id), self.layout().index(bucket(id))];
        let sent = self.run(id, &self.scripts.sweep, &keys, &[self.moment().as_bytes()]).await?;
        Ok(reply::swept(id, &sent.value)?.answer)
    }

    /// What the scripts are told about WAIT.
    const fn confirms(&self) -> &'static [u8] {
        match self.confirm {
            Some(_) => b"1",
            None => b"",
        }
    }
}

/// Leaves out what is empty at the end: every argument costs the server time.
fn without_empty_end<'a>(arguments: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
    let end = arguments.iter().rposition(|argument| !argument.is_empty()).map_or(0, |at| at + 1);
    arguments.get(..end).unwrap_or(arguments)
}
