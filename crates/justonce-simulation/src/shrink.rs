//! Makes a plan smaller for as long as it fails in the same way.

use crate::plan::{HandlerEnd, Leaves, Plan};

/// So many smaller plans are tried at most.
const MOST_TRIES: usize = 400;

/// The smallest plan that was found.
pub(crate) fn smaller(mut plan: Plan, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut tries = MOST_TRIES;
    loop {
        let before = size(&plan);
        for candidate in Candidate::all(&plan) {
            let Some(next) = candidate.of(&plan) else { continue };
            if tries == 0 {
                return plan;
            }
            tries -= 1;
            if fails(&next) {
                plan = next;
            }
        }
        if size(&plan) == before {
            return plan;
        }
    }
}

/// How much there is in a plan.
fn size(plan: &Plan) -> usize {
    let handlers: usize = plan.calls.iter().map(|call| call.handler.parts.len()).sum();
    let leaves = plan.calls.iter().filter(|call| call.leaves != Leaves::Never).count();
    let ends = plan.calls.iter().filter(|call| call.handler.end != HandlerEnd::Ok).count();
    plan.calls.len()
        + plan.incidents.len()
        + handlers
        + leaves
        + ends
        + usize::from(plan.trouble > 0)
}

/// Something that may be left out.
#[derive(Clone, Copy, Debug)]
enum Candidate {
    Trouble,
    Incident(usize),
    Call(usize),
    /// A part of a call's handler.
    Part(usize),
    /// A call does not leave.
    Leaves(usize),
    /// A handler ends well.
    End(usize),
}

impl Candidate {
    /// All of a plan, from the last on: places before one that was left out stay the same.
    fn all(plan: &Plan) -> Vec<Self> {
        let calls = || (0..plan.calls.len()).rev();
        let incidents = (0..plan.incidents.len()).rev();
        [Self::Trouble]
            .into_iter()
            .chain(incidents.map(Self::Incident))
            .chain(calls().map(Self::Call))
            .chain(calls().map(Self::Part))
            .chain(calls().map(Self::Leaves))
            .chain(calls().map(Self::End))
            .collect()
    }

    /// The plan without it; nothing if it has no such thing.
    fn of(self, plan: &Plan) -> Option<Plan> {
        let mut next = plan.clone();
        match self {
            Self::Trouble if next.trouble > 0 => next.trouble = 0,
            Self::Trouble => return None,
            Self::Incident(at) => {
                (at < next.incidents.len()).then(|| next.incidents.remove(at))?;
            }
            Self::Call(at) => {
                (at < next.calls.len()).then(|| next.calls.remove(at))?;
            }
            Self::Part(at) => {
                next.calls.get_mut(at)?.handler.parts.pop()?;
            }
            Self::Leaves(at) => {
                let call = next.calls.get_mut(at).filter(|call| call.leaves != Leaves::Never)?;
                call.leaves = Leaves::Never;
            }
            Self::End(at) => {
                let handler = &mut next.calls.get_mut(at)?.handler;
                (handler.end != HandlerEnd::Ok).then_some(())?;
                handler.end = HandlerEnd::Ok;
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan;
    use crate::plan::World;

    #[test]
    fn only_what_matters_is_left() {
        let large = plan(World::Memory, 5);
        assert!(large.calls.len() > 1);
        let wanted = large.calls.last().map(|call| call.number);
        let small = smaller(large, |plan| plan.calls.iter().any(|c| Some(c.number) == wanted));
        assert_eq!(small.calls.len(), 1);
        assert!(small.incidents.is_empty());
        assert_eq!(small.trouble, 0);
    }
}
