//! The part of a history that is about one operation.

use super::event::Reply;

/// What happened to one operation. Places are those in the whole history.
#[derive(Debug, Default)]
pub(super) struct Operation<'a> {
    pub(super) requests: Vec<Request<'a>>,
    /// Where it took effect, and what was answered.
    pub(super) effects: Vec<(usize, &'a str)>,
}

/// A request and what became of it.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) asked: usize,
    pub(super) replied: Option<(usize, &'a Reply)>,
}

/// A reply that acknowledges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgement<'a> {
    pub(super) at: usize,
    pub(super) answer: &'a str,
    pub(super) replayed: bool,
}

impl<'a> Operation<'a> {
    /// Every acknowledgement, in the order of arrival.
    pub(super) fn acknowledgements(&self) -> Vec<Acknowledgement<'a>> {
        let mut all: Vec<_> = self
            .requests
            .iter()
            .filter_map(|request| match request.replied? {
                (at, Reply::Acknowledged { answer, replayed }) => {
                    Some(Acknowledgement { at, answer, replayed: *replayed })
                }
                _ => None,
            })
            .collect();
        all.sort_by_key(|acknowledgement| acknowledgement.at);
        all
    }

    /// What the last request heard that heard anything about the operation.
    pub(super) fn last_word(&self) -> Option<(usize, &'a Reply)> {
        let mut telling = self.requests.iter().filter_map(|request| {
            let (_, reply) = request.replied?;
            let tells = matches!(
                reply,
                Reply::Acknowledged { .. } | Reply::InFlight | Reply::Unknown | Reply::Superseded
            );
            tells.then_some((request.asked, reply))
        });
        let first = telling.next()?;
        Some(telling.fold(first, |last, next| if next.0 > last.0 { next } else { last }))
    }

    /// How many requests may have been executed. One that was never answered may.
    pub(super) fn executable(&self) -> usize {
        let may = |request: &&Request<'_>| {
            request.replied.is_none_or(|(_, reply)| reply.may_have_executed())
        };
        self.requests.iter().filter(may).count()
    }
}
