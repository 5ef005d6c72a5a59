//! What becomes of an operation, by the status of its answer.

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::headers::OUTCOME;
use crate::verdict::Verdict;

/// What becomes of an operation that was answered with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStatus {
    /// The answer is stored and replayed.
    Keep,
    /// The key is free again.
    Release,
    /// It may have taken effect.
    Unknown,
}

/// Which answers are stored, released or unknown.
///
/// ```
/// use justonce_http::{OnStatus, StatusRules};
///
/// // The default: 2xx, 3xx and 4xx are kept, but for those that say "not now" or "not you"; 5xx
/// // may have taken effect.
/// let rules = StatusRules::default();
/// assert_eq!(rules.of(201), OnStatus::Keep);
/// assert_eq!(rules.of(429), OnStatus::Release);
/// assert_eq!(rules.of(500), OnStatus::Unknown);
///
/// // Customised: this service rolls back before it answers 5xx, and 404 may pass.
/// let rules = StatusRules::default().class(5, OnStatus::Release).code(404, OnStatus::Release);
/// assert_eq!(rules.of(500), OnStatus::Release);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatusRules {
    classes: Vec<(u16, OnStatus)>,
    codes: Vec<(u16, OnStatus)>,
}

impl StatusRules {
    /// A rule for all codes of a class: 5 for 5xx.
    #[must_use]
    pub fn class(mut self, class: u16, rule: OnStatus) -> Self {
        self.classes.push((class, rule));
        self
    }

    /// A rule for one code; it counts more than that of its class.
    #[must_use]
    pub fn code(mut self, code: u16, rule: OnStatus) -> Self {
        self.codes.push((code, rule));
        self
    }

    /// The rule for a code.
    #[must_use]
    pub fn of(&self, code: u16) -> OnStatus {
        self.chosen(code).unwrap_or_else(|| by_default(code))
    }

    fn chosen(&self, code: u16) -> Option<OnStatus> {
        let code_rule = self.codes.iter().rev().find(|(other, _)| *other == code);
        let class_rule = || self.classes.iter().rev().find(|(class, _)| *class == code / 100);
        code_rule.or_else(class_rule).map(|(_, rule)| *rule)
    }

    /// What becomes of an operation with this answer: what the service says, else by its status.
    pub(crate) fn verdict(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        said: Option<Verdict>,
    ) -> Verdict {
        if status.is_informational() {
            // No outcome: the real answer was still to come.
            return Verdict::Unknown;
        }
        if let Some(verdict) = said.or_else(|| from_header(headers)) {
            return verdict;
        }
        let code = status.as_u16();
        let try_later = code == 503 && headers.contains_key(RETRY_AFTER);
        match self.chosen(code) {
            None if try_later => Verdict::NotExecuted,
            None => as_verdict(by_default(code)),
            Some(rule) => as_verdict(rule),
        }
    }
}

fn from_header(headers: &HeaderMap) -> Option<Verdict> {
    let mut lines = headers.get_all(&OUTCOME).into_iter();
    match (lines.next()?.as_bytes(), lines.next()) {
        (b"final", None) => Some(Verdict::Final),
        (b"retryable", None) => Some(Verdict::NotExecuted),
        // What cannot be read is no permission to run again.
        _ => Some(Verdict::Unknown),
    }
}

const fn as_verdict(rule: OnStatus) -> Verdict {
    match rule {
        OnStatus::Keep => Verdict::Final,
        OnStatus::Release => Verdict::NotExecuted,
        OnStatus::Unknown => Verdict::Unknown,
    }
}

/// Answers that say "not you" or "not now" were given before anything happened. Of 5xx only those
/// that say "never" are as good as an outcome.
const fn by_default(code: u16) -> OnStatus {
    match code {
        401 | 403 | 407 | 408 | 421 | 425 | 429 => OnStatus::Release,
        501 | 505 => OnStatus::Keep,
        500..=599 => OnStatus::Unknown,
        _ => OnStatus::Keep,
    }
}
