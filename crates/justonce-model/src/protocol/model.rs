//! The model: what each move does, and every step to the store by the rules under test.

use justonce_core::{
    Action, Answer, Begin, Change, Claimed, Decision, Entry, Existing, Failed, Failure,
    FailureKind, Fence, Lost, OnLapsed, Outcome, Resolution, Resolve, Resolver, State, Timestamp,
    Token, UnknownReason, Why, transition,
};
use stateright::{Model, Property};

use super::moves::{Move, Reply};
use crate::laws::{self, Judged, Law};
use crate::setup::{Explored, Setup, TICK};
use crate::world::{Disk, End, Held, Phase, Point, Ran, Request, Truth, Verdict, World, end_of};

/// The rules under test: the shape of [`justonce_core::transition`].
pub type Rules = fn(Option<&Entry>, &Action, Timestamp, Fence) -> Decision;

/// A stranger's token, which no worker of the model ever has.
const STRANGER: Token = Token(2000);

/// The protocol as a model: rules in a world.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub(super) rules: Rules,
    pub(super) setup: Setup,
}

impl Protocol {
    /// The rules that are shipped.
    #[must_use]
    pub fn shipped(setup: Setup) -> Self {
        Self::with(transition, setup)
    }

    /// Other rules.
    #[must_use]
    pub fn with(rules: Rules, setup: Setup) -> Self {
        Self { rules, setup }
    }

    /// The step that a request stands for.
    pub(super) fn action(&self, request: Request) -> Action {
        match request {
            Request::Begin(token) => {
                Action::Begin(Box::new(Begin { token, ..self.setup.begin.clone() }))
            }
            Request::Renew(fence) => Action::Renew(fence),
            Request::Save(fence, point, number) => {
                let saved = self.setup.checkpoint(point).unwrap_or(&self.setup.ready);
                Action::Checkpoint(fence, saved.clone().numbered(number))
            }
            Request::Say(fence, verdict) => self.last_word(fence, verdict),
            Request::Resolve(fence, truth) => {
                let resolution = match truth {
                    Truth::Happened => Resolution::Complete(self.setup.found.clone()),
                    Truth::Failed => Resolution::Fail(self.setup.found.clone()),
                    Truth::Nothing => Resolution::Release,
                };
                let by = Resolver::probe("p");
                let why = Why::new("");
                Action::Resolve(fence, Box::new(Resolve { resolution, by, why }))
            }
        }
    }

    fn last_word(&self, fence: Fence, verdict: Verdict) -> Action {
        let failure =
            |kind| Failure { outcome: self.setup.failure.clone(), kind, jitter: u32::MAX };
        match verdict {
            // Each owner has an outcome of its own, so that no change of it goes unseen.
            Verdict::Complete => Action::Complete(fence, Outcome::bytes(vec![b'0'; by(fence)])),
            Verdict::FailForNow => Action::Fail(fence, failure(FailureKind::Passing)),
            Verdict::FailForGood => Action::Fail(fence, failure(FailureKind::Permanent)),
            Verdict::Release => Action::Release(fence),
            Verdict::Abandon => Action::Abandon(fence, UnknownReason::Reported.into()),
        }
    }

    /// One step to the store, under the auditor's eyes.
    fn deliver(&self, world: &mut World, action: &Action) -> Answer {
        let fresh = match action {
            Action::Begin(_) => world.book.issued.next(),
            _ => Fence::NONE,
        };
        let before = world.entry.as_ref();
        let Decision { change, answer, durable, note } =
            (self.rules)(before, action, world.now, fresh);
        let after = after(world.entry.clone(), change);
        let broken = self.audit(world, action, (&answer, note.as_ref()), after.as_ref());
        self.keep_book(world, action, &answer, after.as_ref());
        world.book.broken = broken;
        store(world, after, durable);
        answer
    }

    /// Sends a request; there is no answer if the reply is lost.
    fn send(&self, world: &mut World, request: Request, reply: Reply) -> Option<Answer> {
        known(world, request);
        if reply == Reply::Delayed {
            world.delays_left = world.delays_left.saturating_sub(1);
            world.late.push(request);
            return None;
        }
        let answer = self.deliver(world, &self.action(request));
        (reply == Reply::Heard).then_some(answer)
    }

    /// What a move does; nothing if it cannot be made.
    fn make(&self, world: &mut World, made: Move) -> Option<()> {
        match made {
            Move::Crash(worker) => *world.workers.get_mut(worker)? = Phase::Away,
            Move::Ask(worker, reply) => self.ask(world, worker, reply)?,
            Move::Run(worker, ran) => self.run(world, worker, ran)?,
            Move::Save(worker, reply) => self.save(world, worker, reply)?,
            Move::Renew(worker, reply) => self.renew(world, worker, reply)?,
            Move::Say(worker, verdict, reply) => self.say(world, worker, verdict, reply)?,
            Move::Arrive(late) => {
                let request = (late < world.late.len()).then(|| world.late.remove(late))?;
                self.deliver(world, &self.action(request));
            }
            Move::Resolve(truth, reply) => {
                let fence = world.entry.as_ref()?.fence();
                self.send(world, Request::Resolve(fence, truth), reply);
            }
            Move::Stranger => self.stranger(world),
            Move::Forget => self.forget(world),
            Move::Sweep => drop(self.deliver(world, &Action::Sweep)),
            Move::Outage => outage(world),
            Move::Tick => world.now = world.now.after(TICK),
        }
        Some(())
    }

    fn ask(&self, world: &mut World, worker: usize, reply: Reply) -> Option<()> {
        let token = match *world.workers.get(worker)? {
            Phase::Asking(token) => token,
            _ => {
                world.calls += 1;
                Token(u128::from(world.calls))
            }
        };
        let answer = self.send(world, Request::Begin(token), reply);
        *world.workers.get_mut(worker)? = match answer {
            None => Phase::Asking(token),
            Some(Answer::Claimed(Claimed { fence, checkpoint, .. })) => {
                let given = self.setup.point(checkpoint.as_ref());
                Phase::Holding(Held { fence, ran: Ran::NotYet, given, point: given })
            }
            Some(Answer::Existing(Existing::Completed(_) | Existing::Failed(_))) => {
                Phase::Over(End::Replayed)
            }
            Some(Answer::Existing(Existing::Expired(_))) => Phase::Over(End::Expired),
            Some(_) => Phase::Away,
        };
        Some(())
    }

    fn run(&self, world: &mut World, worker: usize, ran: Ran) -> Option<()> {
        let held = held(world, worker)?;
        held.ran = ran;
        let fence = held.fence;
        if ran == Ran::WithEffect && held.point != Point::Paid {
            world.book.effects = world.book.effects.saturating_add(1).min(2);
        }
        if self.setup.policy.on_lapsed() == OnLapsed::Hold {
            let before = world.book.open_run.replace(fence);
            world.book.broken.note(Law::HoldRunsOnce, before.is_none());
        }
        Some(())
    }

    fn save(&self, world: &mut World, worker: usize, reply: Reply) -> Option<()> {
        let Held { fence, ran, given, .. } = *held(world, worker)?;
        let point = if ran == Ran::WithEffect { Point::Paid } else { Point::Ready };
        let request = Request::Save(fence, point, point.number_since(given));
        match self.send(world, request, reply) {
            Some(Answer::Applied) => held(world, worker)?.point = point,
            Some(answer) => stop_if_superseded(world, worker, &answer)?,
            None => {}
        }
        Some(())
    }

    fn renew(&self, world: &mut World, worker: usize, reply: Reply) -> Option<()> {
        let fence = held(world, worker)?.fence;
        if let Some(answer) = self.send(world, Request::Renew(fence), reply) {
            stop_if_superseded(world, worker, &answer)?;
        }
        Some(())
    }

    fn say(&self, world: &mut World, worker: usize, said: Verdict, reply: Reply) -> Option<()> {
        let fence = match *world.workers.get(worker)? {
            Phase::Saying(fence, _) | Phase::Holding(Held { fence, .. }) => fence,
            _ => return None,
        };
        let answer = self.send(world, Request::Say(fence, said), reply);
        *world.workers.get_mut(worker)? = match (answer, said) {
            (None, _) => Phase::Saying(fence, said),
            (Some(Answer::Applied), Verdict::Complete) => Phase::Over(End::Stored),
            (Some(Answer::Applied | Answer::Held(_)), _) => Phase::Away,
            (Some(_), _) => Phase::Over(End::Lost),
        };
        Some(())
    }

    /// Another operation is requested under the same key: that is refused and changes nothing, so
    /// the model goes on without it.
    fn stranger(&self, world: &mut World) {
        if world.living().is_none() {
            return;
        }
        let begin = Action::Begin(Box::new(Begin {
            fingerprint: self.setup.other,
            token: STRANGER,
            ..self.setup.begin.clone()
        }));
        let fresh = world.book.issued.next();
        let decision = (self.rules)(world.entry.as_ref(), &begin, world.now, fresh);
        let refused = decision.answer == Answer::Existing(Existing::Mismatch);
        let kept = refused && decision.change == Change::Keep;
        world.book.broken.note(Law::Fingerprint, kept);
    }

    /// An operator expires the record, and erases it, under its fence and under another. What has
    /// ended may go, and then the model goes on as if its time had been over; whatever has not
    /// ended stays as it is.
    fn forget(&self, world: &mut World) {
        let Some(entry) = world.entry.as_ref() else {
            return;
        };
        let ended = match world.living().map(|record| &record.state) {
            Some(State::Completed(_) | State::Failed(Failed::Final(_))) => true,
            Some(_) => false,
            None => return,
        };
        let (own, other) = (entry.fence(), entry.fence().next());
        let goes = |action| {
            let decision = (self.rules)(Some(entry), &action, world.now, Fence::NONE);
            let gone = after(Some(entry.clone()), decision.change).is_none_or(
                |entry| matches!(entry, Entry::Tombstone(tombstone) if tombstone.until > world.now),
            );
            gone && decision.answer == Answer::Applied && decision.durable
        };
        let right = [Action::Expire(own), Action::Erase(own)].map(goes) == [ended; 2];
        let wrong = [Action::Expire(other), Action::Erase(other)].map(goes) == [false; 2];
        world.book.broken.note(Law::EndedOnly, right && wrong);
    }
}

impl Judged for Protocol {
    /// Whether a law is kept at this moment.
    fn keeps(&self, world: &World, law: Law) -> bool {
        let now_too = match law {
            Law::OneClaimPerFence => no_two_hold_one(world),
            Law::OutcomeStays => keeps_its_end(world),
            Law::CanEnd => self.can_end(world),
            _ => true,
        };
        now_too && !world.book.broken.has(law)
    }
}

impl Explored for Protocol {
    fn setup(&self) -> &Setup {
        &self.setup
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![World::empty(&self.setup.bounds)]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        self.moves(world, moves);
    }

    fn next_state(&self, world: &World, made: Move) -> Option<World> {
        let mut next = world.clone();
        for phase in &mut next.workers {
            // How a call ended is there to be seen once; it changes nothing that follows.
            if matches!(phase, Phase::Over(_)) {
                *phase = Phase::Away;
            }
        }
        self.make(&mut next, made)?;
        // The order of workers and of copies under way means nothing.
        next.workers.sort_unstable();
        next.late.sort_unstable();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let sights = self.setup.sights.iter().map(|sight| sight.property());
        laws::properties().into_iter().chain(sights).collect()
    }
}

/// What the store keeps after a change.
pub(super) fn after(before: Option<Entry>, change: Change) -> Option<Entry> {
    match change {
        Change::Keep => before,
        Change::Put(entry) => Some(entry),
        Change::Remove => None,
    }
}

/// A durable change takes all changes before it along to the disk.
fn store(world: &mut World, after: Option<Entry>, durable: bool) {
    if after == world.entry {
        return;
    }
    let before = std::mem::replace(&mut world.entry, after);
    if durable {
        world.disk = Disk::Same;
    } else if world.disk == Disk::Same {
        world.disk = Disk::Behind(before);
    }
    if matches!(&world.disk, Disk::Behind(disk) if *disk == world.entry) {
        world.disk = Disk::Same;
    }
}

/// A renewal that was forgotten shortens the promise; fences keep that harmless.
fn outage(world: &mut World) {
    if let Disk::Behind(disk) = std::mem::replace(&mut world.disk, Disk::Same) {
        world.entry = disk;
        world.outages_left = world.outages_left.saturating_sub(1);
        world.book.promised = world.claim().map(|claim| (claim.0, claim.1.lease_until));
        if world.entry.is_none() {
            // Only `rerun` may forget a claim, and it has nothing to hand over.
            world.book.attempts = 0;
            world.book.point = Point::Start;
        }
    }
}

/// Once resolved as not happened, the handler may run again.
fn known(world: &mut World, said: Request) {
    let in_vain = match said {
        Request::Say(fence, Verdict::Release | Verdict::FailForNow)
        | Request::Resolve(fence, Truth::Nothing) => Some(fence),
        _ => None,
    };
    if in_vain.is_some() && world.book.open_run == in_vain {
        world.book.open_run = None;
    }
}

fn held(world: &mut World, worker: usize) -> Option<&mut Held> {
    match world.workers.get_mut(worker)? {
        Phase::Holding(held) => Some(held),
        _ => None,
    }
}

/// Once held as unknown, no other worker runs it: the handler may finish.
fn stop_if_superseded(world: &mut World, worker: usize, answer: &Answer) -> Option<()> {
    if matches!(answer, Answer::Lost(lost) if *lost != Lost::Held) {
        *world.workers.get_mut(worker)? = Phase::Over(End::Lost);
    }
    Some(())
}

fn by(fence: Fence) -> usize {
    usize::try_from(fence.get()).unwrap_or(usize::MAX)
}

fn no_two_hold_one(world: &World) -> bool {
    let mut fences = world.workers.iter().filter_map(|phase| match phase {
        Phase::Holding(held) => Some(held.fence),
        _ => None,
    });
    // The workers are in order, so equal fences stand side by side.
    let first = fences.next();
    fences.try_fold(first, |last, fence| (last != Some(fence)).then_some(Some(fence))).is_some()
}

fn keeps_its_end(world: &World) -> bool {
    world.book.ended.as_ref().is_none_or(|ended| {
        world.now >= ended.until || end_of(world.entry.as_ref()) == Some(&ended.outcome)
    })
}
