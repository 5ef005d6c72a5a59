//! What can happen next.

use justonce_core::{Entry, OnFailure, OnLapsed, State, Timestamp};

use super::model::Protocol;
use crate::setup::TICK;
use crate::world::{Disk, Held, Phase, Point, Ran, Truth, Verdict, World};

/// One thing that happens. Workers are named by their place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// A worker calls begin, or sends it again.
    Ask(usize, Reply),
    /// Its handler runs, with or without effect.
    Run(usize, Ran),
    /// It saves a checkpoint.
    Save(usize, Reply),
    /// It renews its lease.
    Renew(usize, Reply),
    /// It settles its claim, or repeats that.
    Say(usize, Verdict, Reply),
    /// It crashes and forgets everything.
    Crash(usize),
    /// A delayed request arrives; its answer is lost.
    Arrive(usize),
    /// The operation is resolved.
    Resolve(Truth, Reply),
    /// Another operation is requested under the same key.
    Stranger,
    /// The record is expired or erased by an operator.
    Forget,
    /// The store does what time demands.
    Sweep,
    /// The store crashes and restarts with what is on disk.
    Outage,
    /// Time passes.
    Tick,
}

/// What becomes of a request and its reply. Not to be sent at all is the same as to be sent later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Applied, and the sender gets the answer.
    Heard,
    /// Applied, and the answer is lost: the sender may send it again.
    Lost,
    /// Not applied yet, and the sender hears nothing: it may arrive at any time or never, and
    /// also after it was sent again.
    Delayed,
}

impl Protocol {
    /// All that can happen next.
    pub(super) fn moves(&self, world: &World, moves: &mut Vec<Move>) {
        let mut before = None;
        for (worker, phase) in world.workers.iter().enumerate() {
            // Workers have no names: of those that do the same, one is enough.
            if before.replace(*phase) != Some(*phase) {
                self.moves_of(world, worker, *phase, moves);
            }
        }
        moves.extend((0..world.late.len()).map(Move::Arrive));
        if matches!(world.entry, Some(Entry::Record(_))) {
            moves.push(Move::Stranger);
            for truth in self.truths(world) {
                // A resolver that hears nothing asks again: that is the same as to be heard late.
                let replies = replies(world).filter(|reply| *reply != Reply::Lost);
                moves.extend(replies.map(|reply| Move::Resolve(truth, reply)));
            }
        }
        if world.entry.is_some() {
            moves.extend([Move::Forget, Move::Sweep]);
        }
        if world.disk != Disk::Same && world.outages_left > 0 {
            moves.push(Move::Outage);
        }
        if world.now < Timestamp::ZERO.after(TICK * self.setup.bounds.ticks) {
            moves.push(Move::Tick);
        }
    }

    fn moves_of(&self, world: &World, worker: usize, phase: Phase, moves: &mut Vec<Move>) {
        match phase {
            Phase::Away | Phase::Over(_) => {
                if world.calls < self.setup.bounds.calls {
                    moves.extend(replies(world).map(|reply| Move::Ask(worker, reply)));
                }
                return;
            }
            Phase::Asking(_) => {
                moves.extend(replies(world).map(|reply| Move::Ask(worker, reply)));
            }
            Phase::Saying(_, verdict) => {
                moves.extend(replies(world).map(|reply| Move::Say(worker, verdict, reply)));
                if verdict != Verdict::Abandon {
                    // An owner that is not heard gives up in the end; that may overtake the rest.
                    moves.push(Move::Say(worker, Verdict::Abandon, Reply::Heard));
                }
                if verdict == Verdict::FailForNow {
                    // Or it finds out meanwhile that the failure will not pass.
                    moves.push(Move::Say(worker, Verdict::FailForGood, Reply::Heard));
                }
            }
            Phase::Holding(held) => self.moves_of_holder(world, worker, held, moves),
        }
        moves.push(Move::Crash(worker));
    }

    fn moves_of_holder(&self, world: &World, worker: usize, held: Held, moves: &mut Vec<Move>) {
        let ready = !self.setup.saves || held.point != Point::Start;
        if held.ran == Ran::NotYet && ready {
            moves.push(Move::Run(worker, Ran::WithEffect));
            // Without a policy for failures, a failed run ends as one that never began.
            let told = self.setup.fails || self.setup.policy.on_lapsed() == OnLapsed::Hold;
            if told && held.point != Point::Paid {
                moves.push(Move::Run(worker, Ran::InVain));
            }
        }
        if self.setup.renews {
            // A worker whose renewal was applied goes on as it would without hearing it.
            let replies = replies(world).filter(|reply| *reply != Reply::Lost);
            moves.extend(replies.map(|reply| Move::Renew(worker, reply)));
        }
        let unsaved = held.ran == Ran::WithEffect && held.point != Point::Paid;
        if self.setup.saves && (unsaved || !ready) {
            moves.extend(replies(world).map(|reply| Move::Save(worker, reply)));
        }
        for verdict in self.verdicts(held) {
            moves.extend(replies(world).map(|reply| Move::Say(worker, verdict, reply)));
        }
    }

    /// How a worker may settle its claim.
    fn verdicts(&self, held: Held) -> impl Iterator<Item = Verdict> + use<> {
        let Held { ran, given, point, .. } = held;
        let retries = matches!(self.setup.policy.on_failure(), OnFailure::Retry(_));
        let fails = self.setup.fails;
        let all = [
            (Verdict::Complete, ran == Ran::WithEffect),
            // Nothing happened under this claim, whatever happened under those before it.
            (Verdict::Release, ran != Ran::WithEffect && point == given),
            (Verdict::FailForGood, ran == Ran::InVain && fails),
            // A later step failed: what is saved is handed to the next attempt.
            (Verdict::FailForNow, fails && (ran == Ran::InVain || point == Point::Paid && retries)),
            (Verdict::Abandon, true),
        ];
        all.into_iter().filter(|(_, honest)| *honest).map(|(verdict, _)| verdict)
    }

    /// The truthful resolutions, whatever comes later. Whether the operation is unknown is checked
    /// by the rules.
    fn truths(&self, world: &World) -> impl Iterator<Item = Truth> + use<> {
        let open = matches!(world.state(), Some(State::InProgress(_) | State::Unknown(_)));
        let happened = world.book.effects > 0;
        let never = !happened && !world.may_yet_execute();
        let all = [
            (Truth::Happened, happened),
            (Truth::Nothing, never),
            (Truth::Failed, never && self.setup.fails),
        ];
        all.into_iter().filter(move |(_, known)| open && *known).map(|(truth, _)| truth)
    }
}

fn replies(world: &World) -> impl Iterator<Item = Reply> + use<> {
    let delays = world.delays_left > 0;
    [Reply::Heard, Reply::Lost, Reply::Delayed]
        .into_iter()
        .filter(move |reply| delays || *reply != Reply::Delayed)
}
