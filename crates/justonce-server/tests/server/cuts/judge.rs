//! What a case has shown, and whether that may be.

use crate::cuts::line::{Direction, Done, End};
use crate::cuts::series::Series;
use crate::cuts::service::Form;
use crate::support::upstream::Message;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// The client was told so, and its retry was the first execution.
    NotExecuted,
    /// The client got the response, and its retry got the same bytes.
    Stored,
    /// The same, but the service had no way to say where its response ends: it may be shorter.
    Shortened,
    /// Nobody knows: the retry was not executed.
    Unknown,
}

/// Everything that was seen of one case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) series: Series,
    pub(crate) is_http2: bool,
    /// Nothing if the exchange was over before.
    pub(crate) cut: Option<Done>,
    /// What the client got; nothing if that broke off.
    pub(crate) first: Option<Message>,
    /// What had taken effect then.
    pub(crate) before: Vec<String>,
    pub(crate) retry: Message,
    /// What has taken effect after all.
    pub(crate) after: Vec<String>,
    pub(crate) state: String,
}

impl Case {
    /// How it ended, or a failed test.
    pub(crate) fn judge(&self) -> Ending {
        assert!(self.after.len() <= 1, "two effects: {self:?}");
        match self.retry.status() {
            201 if self.retry.is_replay() => self.stored(),
            201 => self.not_executed(),
            409 => self.unknown(),
            _ => panic!("it ended in no way that it may: {self:?}"),
        }
    }

    fn code_of_first(&self) -> String {
        self.first.as_ref().map(Message::code).unwrap_or_default()
    }

    fn stored(&self) -> Ending {
        let effect = self.after.first().unwrap_or_else(|| panic!("without an effect: {self:?}"));
        let first = self.first.as_ref().unwrap_or_else(|| panic!("stored unseen: {self:?}"));
        assert_eq!((first.status(), &first.body), (201, &self.retry.body), "{self:?}");
        assert_eq!(self.state, "completed", "{self:?}");
        if self.retry.text() == *effect {
            return Ending::Stored;
        }
        let may_be_shorter = self.cut.is_some()
            && self.series.form == Form::Ended10
            && self.series.direction == Some(Direction::Response)
            && self.series.end == End::Closed;
        let is_shorter = effect.starts_with(&self.retry.text());
        assert!(may_be_shorter && is_shorter, "a cut response was stored: {self:?}");
        Ending::Shortened
    }

    fn not_executed(&self) -> Ending {
        assert_eq!(self.code_of_first(), "upstream-unreachable", "{self:?}");
        assert!(self.before.is_empty(), "it was executed: {self:?}");
        let requested = self.cut.map_or(0, |cut| cut.requested);
        assert!(self.is_http2 || requested == 0, "the service saw something of it: {self:?}");
        assert_eq!((self.after.len(), self.state.as_str()), (1, "completed"), "{self:?}");
        Ending::NotExecuted
    }

    fn unknown(&self) -> Ending {
        assert_eq!(self.retry.code(), "outcome-unknown", "{self:?}");
        assert_eq!(self.state, "unknown", "{self:?}");
        let told = match self.first.as_ref().map(Message::status) {
            // The response broke off.
            None => true,
            Some(502 | 504) => self.code_of_first() == "upstream-failed",
            Some(201) => self.series.form == Form::Ended11,
            Some(_) => false,
        };
        assert!(told, "the client was told something else: {self:?}");
        Ending::Unknown
    }
}
