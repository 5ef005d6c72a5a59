//! Reading a whole history.

use std::collections::{BTreeMap, HashMap};

use super::event::{Event, Reply, RequestId};
use super::operation::{Operation, Request};
use super::recorder::History;
use super::verdict::{Figures, Guarantee, Offence, OffenceKind, Verdict};

/// Whether a history keeps a guarantee. It sees what clients and the service saw, and nothing of
/// what lies between them.
#[must_use]
pub fn judge(history: &History, guarantee: Guarantee) -> Verdict {
    let mut court = Court::default();
    let operations = court.sorted(history);
    for (name, operation) in &operations {
        court.judge(name, operation, guarantee);
        court.count(operation);
    }
    Verdict { offences: court.offences, figures: court.figures }
}

#[derive(Default)]
struct Court {
    offences: Vec<Offence>,
    figures: Figures,
}

impl Court {
    fn accuse(&mut self, operation: &str, kind: OffenceKind, detail: String) {
        self.offences.push(Offence { operation: operation.to_owned(), kind, detail });
    }

    /// The history, operation by operation.
    fn sorted<'a>(&mut self, history: &'a History) -> BTreeMap<&'a str, Operation<'a>> {
        let mut operations = BTreeMap::<&str, Operation<'_>>::new();
        let mut places = HashMap::<RequestId, (&str, usize)>::new();
        for (at, event) in history.events.iter().enumerate() {
            match event {
                Event::Asked { operation, request } => {
                    let requests = &mut operations.entry(operation).or_default().requests;
                    places.insert(*request, (operation, requests.len()));
                    requests.push(Request { asked: at, replied: None });
                }
                Event::Effect { operation, answer } => {
                    operations.entry(operation).or_default().effects.push((at, answer));
                }
                Event::Replied { request, reply } => {
                    let place = places.get(request);
                    let slot = place.and_then(|(name, index)| {
                        operations.get_mut(name)?.requests.get_mut(*index)
                    });
                    match slot {
                        Some(request) if request.replied.is_none() => {
                            request.replied = Some((at, reply));
                        }
                        _ => {
                            let name = place.map_or("", |(name, _)| *name);
                            let detail = format!("no request waits for {reply:?}");
                            self.accuse(name, OffenceKind::Disorder, detail);
                        }
                    }
                }
            }
        }
        operations
    }

    fn judge(&mut self, name: &str, operation: &Operation<'_>, guarantee: Guarantee) {
        self.effects(name, operation, guarantee);
        self.answers(name, operation, guarantee);
        self.memory(name, operation, guarantee);
        for (_, reply) in operation.requests.iter().filter_map(|request| request.replied) {
            if let Reply::Surprise(what) = reply {
                self.accuse(name, OffenceKind::Surprise, what.clone());
            }
        }
    }

    /// Not too many, none unasked, none after a replay.
    fn effects(&mut self, name: &str, operation: &Operation<'_>, guarantee: Guarantee) {
        let effects = &operation.effects;
        if guarantee == Guarantee::AtMostOnce && effects.len() > 1 {
            let answers: Vec<_> = effects.iter().map(|(_, answer)| *answer).collect();
            self.accuse(
                name,
                OffenceKind::Twice,
                format!("{} effects: {answers:?}", effects.len()),
            );
        }
        let first_asked = operation.requests.iter().map(|request| request.asked).min();
        let too_early = effects.iter().any(|(at, _)| first_asked.is_none_or(|asked| *at < asked));
        if too_early || effects.len() > operation.executable() {
            let detail = format!(
                "{} effects, and {} requests that may have been executed",
                effects.len(),
                operation.executable()
            );
            self.accuse(name, OffenceKind::Unasked, detail);
        }
        let replayed = operation.acknowledgements().into_iter().find(|reply| reply.replayed);
        if let Some(replay) = replayed
            && let Some((_, answer)) = effects.iter().find(|(at, _)| *at > replay.at)
        {
            let detail = format!("{:?} was replayed, then {answer:?} was done", replay.answer);
            self.accuse(name, OffenceKind::AfterReplay, detail);
        }
    }

    /// Every answer is one that the service gave, and all clients have the same.
    fn answers(&mut self, name: &str, operation: &Operation<'_>, guarantee: Guarantee) {
        let acknowledgements = operation.acknowledgements();
        for reply in &acknowledgements {
            let given = |(at, answer): &(usize, &str)| *at < reply.at && *answer == reply.answer;
            if !operation.effects.iter().any(given) {
                let detail = format!("{:?} was acknowledged, and not done by then", reply.answer);
                self.accuse(name, OffenceKind::Invented, detail);
            }
        }
        // An owner that could not store its outcome may answer, and another may do it again: only
        // where that is excluded must the first answers agree as well.
        let binding = |replayed: bool| replayed || guarantee == Guarantee::AtMostOnce;
        let mut binding = acknowledgements.iter().filter(|reply| binding(reply.replayed));
        if let Some(first) = binding.next()
            && let Some(other) = binding.find(|reply| reply.answer != first.answer)
        {
            let detail = format!("{:?} and {:?}", first.answer, other.answer);
            self.accuse(name, OffenceKind::TwoOutcomes, detail);
        }
    }

    /// What was acknowledged is found again.
    fn memory(&mut self, name: &str, operation: &Operation<'_>, guarantee: Guarantee) {
        let acknowledgements = operation.acknowledgements();
        if let Some(replay) = acknowledgements.iter().find(|reply| reply.replayed) {
            // It was stored: whoever asks from then on gets it, or hears that it cannot be asked.
            for request in operation.requests.iter().filter(|request| request.asked > replay.at) {
                if let Some((_, reply @ (Reply::InFlight | Reply::Unknown | Reply::Superseded))) =
                    request.replied
                {
                    let detail = format!("{:?} was replayed, then {reply:?}", replay.answer);
                    return self.accuse(name, OffenceKind::Forgotten, detail);
                }
            }
        }
        let Some(first) = acknowledgements.first() else { return };
        let Some((asked, reply)) = operation.last_word() else { return };
        let found = match reply {
            // Where it may be done again, the stored outcome may be that of a later attempt.
            Reply::Acknowledged { answer, .. } => {
                guarantee == Guarantee::AtLeastOnce || answer == first.answer
            }
            _ => false,
        };
        if asked > first.at && !found {
            let detail = format!("{:?} was acknowledged, the last word is {reply:?}", first.answer);
            self.accuse(name, OffenceKind::Forgotten, detail);
        }
    }

    fn count(&mut self, operation: &Operation<'_>) {
        let figures = &mut self.figures;
        figures.operations += 1;
        figures.requests += operation.requests.len() as u64;
        figures.effects += operation.effects.len() as u64;
        figures.repeated += u64::from(operation.effects.len() > 1);
        let last = operation.last_word().map(|(_, reply)| reply);
        if !operation.acknowledgements().is_empty() {
            figures.acknowledged += 1;
        } else if last == Some(&Reply::Unknown) {
            figures.unknown += 1;
        } else {
            figures.open += 1;
        }
    }
}
