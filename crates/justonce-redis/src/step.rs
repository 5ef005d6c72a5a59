//! A step of the protocol as a call of its script.

use justonce_core::codec::note_words;
use justonce_core::{
    Action, Answer, Begin, FailureKind, Fence, HowResolved, NoteKind, Outcome, RecordId,
    Resolution, Resolve, Step, StoreResult,
};

use crate::codec::{self, NewClaim};
use crate::error::unexpected;
use crate::layout::{Key, bucket};
use crate::reply::{self, Answered};
use crate::scripts::Lua;
use crate::store::RedisStore;

impl RedisStore {
    /// Takes a step by itself.
    pub(crate) async fn apply_alone(&self, step: &Step) -> StoreResult<Answer> {
        let scripts = &self.scripts;
        match &step.action {
            Action::Begin(begin) => self.begin(step, begin).await,
            Action::Peek(_) => {
                let keys = [self.layout().record(&step.id)];
                self.call(step, &scripts.peek, &keys, &[self.moment().as_bytes()]).await
            }
            Action::Complete(fence, outcome) => self.complete(step, *fence, outcome).await,
            Action::Fail(_, failure) => {
                let kind: &[u8] = match failure.kind {
                    FailureKind::Passing => b"passing",
                    FailureKind::Permanent => b"permanent",
                };
                let outcome = codec::outcome(&failure.outcome);
                let jitter = failure.jitter.to_string();
                self.write(step, &scripts.fail, &[&outcome, kind, jitter.as_bytes()]).await
            }
            Action::Release(_) => self.write(step, &scripts.release, &[]).await,
            Action::Renew(_) => self.write(step, &scripts.renew, &[]).await,
            Action::Checkpoint(_, checkpoint) => {
                let number = checkpoint.number().to_string();
                let (bytes, name) = (codec::checkpoint(checkpoint), checkpoint.name());
                let arguments = [number.as_bytes(), &bytes, name.as_bytes()];
                self.write(step, &scripts.checkpoint, &arguments).await
            }
            Action::Abandon(_, why) => {
                let mut words = vec![why.reason.as_str().as_bytes()];
                words.extend(why.cause.as_ref().map(|cause| cause.as_str().as_bytes()));
                self.write(step, &scripts.abandon, &words).await
            }
            Action::Resolve(_, resolve) => self.resolve(step, resolve).await,
            Action::Expire(_) => self.write(step, &scripts.expire, &[]).await,
            Action::Erase(_) => self.write(step, &scripts.erase, &[]).await,
            Action::Sweep => {
                let keys = self.keys(&step.id);
                self.call(step, &scripts.sweep, &keys, &[self.moment().as_bytes()]).await
            }
        }
    }

    async fn begin(&self, step: &Step, begin: &Begin) -> StoreResult<Answer> {
        let NewClaim { terms, body, checkpoint } = NewClaim::new(&step.id, begin);
        let [record, index] = self.keys(&step.id);
        let keys = [record, index, self.nodes.fence(bucket(&step.id))];
        let moment = self.moment();
        let arguments = [&terms, &*body, &checkpoint, self.confirms(), moment.as_bytes()];
        self.call(step, &self.scripts.begin, &keys, without_empty_end(&arguments)).await
    }

    async fn complete(&self, step: &Step, fence: Fence, outcome: &Outcome) -> StoreResult<Answer> {
        let completion = codec::completion(fence, outcome);
        let moment = self.moment();
        let arguments = [&*completion, self.confirms(), moment.as_bytes()];
        let arguments = without_empty_end(&arguments);
        self.call(step, &self.scripts.complete, &self.keys(&step.id), arguments).await
    }

    async fn resolve(&self, step: &Step, resolve: &Resolve) -> StoreResult<Answer> {
        let empty = Outcome::empty();
        let (how, outcome) = match &resolve.resolution {
            Resolution::Complete(outcome) => (HowResolved::Completed, outcome),
            Resolution::Fail(outcome) => (HowResolved::Failed, outcome),
            Resolution::Release => (HowResolved::Released, &empty),
        };
        let note = NoteKind::Resolved(resolve.by.clone(), how, resolve.why.clone());
        let (_, words) = note_words(&note);
        let [who, name, how, why] = words.as_slice() else {
            return Err(unexpected("a resolution"));
        };
        let outcome = codec::outcome(outcome);
        let [how, who, name, why] = [how, who, name, why].map(|word| word.as_bytes());
        self.write(step, &self.scripts.resolve, &[&outcome, how, who, name, why]).await
    }

    /// A write with a fence, by the owner or an operator.
    async fn write(&self, step: &Step, script: &Lua, rest: &[&[u8]]) -> StoreResult<Answer> {
        let moment = self.moment();
        let fence = step.action.fence().unwrap_or_default().get().to_be_bytes();
        let mut arguments = vec![moment.as_bytes(), self.confirms(), &fence];
        arguments.extend_from_slice(rest);
        self.call(step, script, &self.keys(&step.id), &arguments).await
    }

    /// Runs the script of a step. If it wrote, waits for the replicas.
    async fn call(
        &self,
        step: &Step,
        script: &Lua,
        keys: &[Key<'_>],
        arguments: &[&[u8]],
    ) -> StoreResult<Answer> {
        let reply = self.run(&step.id, script, keys, arguments).await?;
        let Answered { answer, wrote } = reply::answered(step, &reply.value)?;
        if wrote {
            self.confirmed(&step.id, &reply).await?;
        }
        Ok(answer)
    }

    fn keys<'a>(&'a self, id: &'a RecordId) -> [Key<'a>; 2] {
        [self.layout().record(id), self.layout().index(bucket(id))]
    }

    /// The argument that tells scripts whether the write is confirmed by WAIT.
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
