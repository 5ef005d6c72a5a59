//! Going through the phases.

use std::fmt;

use justonce_core::engine::{Context, SaveError};
use justonce_core::{HandlerError, Key};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::declared::{StopCause, Timeouts};
use super::error::PhasesError;
use super::journal::{Journal, unsavable};
use super::within::Within;
use crate::saved::PARKED;

/// The phases of one operation while its handler runs.
pub struct PhaseRun {
    context: Context,
    journal: Journal,
    /// The phase that is entered next. It lies behind the journal while phases are handed over.
    at: usize,
    timeouts: Timeouts,
    stopped: StopCause,
}

impl PhaseRun {
    pub(super) const fn new(
        context: Context,
        journal: Journal,
        timeouts: Timeouts,
        stopped: StopCause,
    ) -> Self {
        Self { context, journal, at: 0, timeouts, stopped }
    }

    /// What a handler knows of its operation.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The input that was stored with the claim, by [`Phases::asked`](super::Phases::asked).
    ///
    /// # Errors
    ///
    /// If there is none, or it is of another type. Hand the error on with `?`.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        self.journal.input().map_err(|error| self.stop(error))
    }

    /// Runs a phase, or hands its saved result over if it is done.
    ///
    /// The phase gets a key that is the same on every attempt, for what it calls to recognise a
    /// repetition by: a crash after the call and before its result was saved makes it run again.
    ///
    /// # Errors
    ///
    /// What the phase says; and if the phases cannot go on. Hand the error on with `?`.
    pub async fn phase<T, P, F>(&mut self, name: &str, phase: P) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        P: FnOnce(Key) -> F,
        F: Future<Output = Result<T, HandlerError>>,
    {
        if let Some(saved) = self.enter(name)? {
            return Ok(saved);
        }
        let result = self.within(name, phase(self.context.child_key(name))).await?;
        self.leave(&result, false).await?;
        Ok(result)
    }

    /// Runs a phase that saves its own checkpoint, with its effects, in one transaction of the
    /// store: then it takes effect exactly once. [`Within`] makes the point.
    ///
    /// # Errors
    ///
    /// As [`PhaseRun::phase`].
    pub async fn phase_within<T, P, F>(&mut self, name: &str, phase: P) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        P: FnOnce(Within) -> F,
        F: Future<Output = Result<T, HandlerError>>,
    {
        if let Some(saved) = self.enter(name)? {
            return Ok(saved);
        }
        let within = Within::new(&self.context, &self.journal, name, &self.stopped);
        let made = within.made();
        let result = self.within(name, phase(within)).await;
        if result.is_err() {
            // A result that cannot be saved was rolled back, and would be again and again.
            self.park_unsavable().await;
        }
        let result = result?;
        self.leave(&result, made.is_made()).await?;
        Ok(result)
    }

    /// A phase that does not end in time may have taken effect.
    async fn within<T>(
        &self,
        name: &str,
        phase: impl Future<Output = Result<T, HandlerError>>,
    ) -> Result<T, HandlerError> {
        let limit = self.timeouts.of(name);
        timeout(limit, phase).await.unwrap_or(Err(HandlerError::Unknown))
    }

    /// Whether a phase is done already: the result of the next phase, if it was saved.
    fn enter<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, HandlerError> {
        let expected = self.journal.phase(self.at);
        if expected != Some(name) {
            let expected = expected.map(str::to_owned);
            return Err(self.stop(PhasesError::Order { entered: name.to_owned(), expected }));
        }
        let saved = self.journal.result(self.at).map_err(|error| self.stop(error))?;
        if saved.is_some() {
            self.at += 1;
        }
        Ok(saved)
    }

    /// A phase is over. After the last one the outcome follows at once, and nothing is saved.
    async fn leave<T: Serialize>(&mut self, result: &T, saved: bool) -> Result<(), HandlerError> {
        let journal = match self.journal.with(result, self.context.attempt()) {
            Ok(journal) => journal,
            Err(error) => return Err(self.park(error).await),
        };
        if saved || journal.next().is_none() {
            self.journal = journal;
            self.at += 1;
            return Ok(());
        }
        let before = self.journal.data().map_or(0, |data| data.len());
        let data = match journal.fitting_data(before) {
            Ok(data) => data,
            Err(error) => return Err(self.park(error).await),
        };
        match self.context.save(journal.name(), data).await {
            Ok(()) => {
                self.journal = journal;
                self.at += 1;
                Ok(())
            }
            Err(SaveError::Refused(error)) => {
                let error = unsavable(journal.name(), error);
                Err(self.park(error).await)
            }
            // The phase took effect, and its result is not saved: the next owner finds out.
            Err(SaveError::Lost(_) | SaveError::Store(_)) => Err(HandlerError::Unknown),
        }
    }

    /// Parks the operation as it was before the phase: another call of it would get the same result
    /// again, and that would never end.
    async fn park(&self, error: PhasesError) -> HandlerError {
        let parked = self.journal.clone().park(error.to_string());
        if let Ok(data) = parked.data() {
            // If this fails, the drives are counted, and it is parked in the end.
            let _ = self.context.save(PARKED, data).await;
        }
        self.stop(error)
    }

    /// Parks the operation if its phase could not make its checkpoint.
    async fn park_unsavable(&self) {
        if let Some(error @ PhasesError::Unsavable { .. }) = self.stopped.get() {
            self.park(error).await;
        }
    }

    /// Gives the operation up as it is, and tells the program why.
    fn stop(&self, error: PhasesError) -> HandlerError {
        self.stopped.set(error);
        HandlerError::Unknown
    }
}

impl fmt::Debug for PhaseRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhaseRun").field("next", &self.journal.phase(self.at)).finish()
    }
}
