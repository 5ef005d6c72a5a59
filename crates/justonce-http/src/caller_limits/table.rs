//! The table of all callers: of fixed size, and no way to be forgotten.
//!
//! Each caller has a place in one set, which a secret hash chooses. In a full set a new caller
//! takes the place of the one that has used the least of its limits, because the least is lost with
//! it. To be forgotten with its limits used up, a caller would have to fill its set with others
//! that have used as much; and because it cannot know its set, all sets.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use justonce_core::Entropy;
use tokio::time::Instant;

use super::settings::CallerLimits;
use super::usage::{Refusal, Usage};

/// How many callers are remembered by default: at about 200 bytes each, 13 MB if all places are
/// taken.
pub const DEFAULT_CALLERS: usize = 65_536;
/// How many callers share a set.
const WAYS: usize = 16;
/// How many bits of an IPv6 address count: a client has all addresses behind them.
const IPV6_BITS: u32 = 64;

/// What the callers of all routes have used of their limits. Clones share everything.
///
/// A layer has one of its own unless it is given one
/// ([`IdempotencyBuilder::caller_usage`](crate::IdempotencyBuilder::caller_usage)).
///
/// ```
/// use justonce_http::CallerUsage;
///
/// // The default: 65,536 callers.
/// let usage = CallerUsage::default();
///
/// // Customised.
/// let small = CallerUsage::with_capacity(1_000);
/// ```
#[derive(Clone)]
pub struct CallerUsage(Arc<Table>);

struct Table {
    sets: Box<[Mutex<Vec<Entry>>]>,
    secret: [u8; 32],
    start: Instant,
}

struct Entry {
    name: Name,
    /// Those under which it was last admitted.
    limits: CallerLimits,
    usage: Usage,
}

type Name = [u8; 16];

/// Who a caller is on a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallerId<'a> {
    /// What identifies it, hashed together with its route.
    Known(&'a [u8; 32]),
    /// Its address, on this route; nothing if it is not known.
    Address(&'a str, Option<IpAddr>),
}

/// An operation that was admitted. It counts as running until it is dropped.
#[must_use]
pub(crate) struct Admitted {
    table: CallerUsage,
    place: Place,
    limits: CallerLimits,
    _running: Arc<()>,
}

#[derive(Clone, Copy)]
struct Place {
    name: Name,
    set: usize,
}

impl Default for CallerUsage {
    fn default() -> Self {
        Self::with_capacity(DEFAULT_CALLERS)
    }
}

impl CallerUsage {
    /// A table for so many callers, rounded up to a multiple of 16.
    #[must_use]
    pub fn with_capacity(callers: usize) -> Self {
        let sets = (0..callers.div_ceil(WAYS).max(1)).map(|_| Mutex::default()).collect();
        let entropy = Entropy::from_system();
        let mut secret = [0; 32];
        let random = [entropy.next_u128(), entropy.next_u128()].map(u128::to_le_bytes);
        secret.iter_mut().zip(random.as_flattened()).for_each(|(to, from)| *to = *from);
        Self(Arc::new(Table { sets, secret, start: Instant::now() }))
    }

    /// Admits an operation of a caller, or says which limit it has reached.
    pub(crate) fn admit(
        &self,
        caller: CallerId<'_>,
        limits: &CallerLimits,
    ) -> Result<Admitted, Refusal> {
        let (place, now) = (self.place(caller), self.now());
        let running = self.with(place, limits, now, |usage| usage.admit(limits, now))?;
        Ok(self.admitted(place, limits, running))
    }

    /// The same for a request that stores nothing. What its caller has stored stays known.
    pub(crate) fn admit_unstored(
        &self,
        caller: CallerId<'_>,
        limits: &CallerLimits,
    ) -> Result<Admitted, Refusal> {
        let (place, now) = (self.place(caller), self.now());
        let counted = limits.without_stored();
        let running = self.with(place, limits, now, |usage| usage.admit(&counted, now))?;
        Ok(self.admitted(place, &counted, running))
    }

    /// Counts an operation of a caller that cannot be refused any more.
    pub(crate) fn force(&self, caller: CallerId<'_>, limits: &CallerLimits) -> Admitted {
        let (place, now) = (self.place(caller), self.now());
        let running = self.with(place, limits, now, |usage| usage.force(limits, now));
        self.admitted(place, limits, running)
    }

    fn admitted(&self, place: Place, limits: &CallerLimits, running: Arc<()>) -> Admitted {
        Admitted { table: self.clone(), place, limits: *limits, _running: running }
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn place(&self, caller: CallerId<'_>) -> Place {
        let mut hasher = blake3::Hasher::new_keyed(&self.0.secret);
        match caller {
            CallerId::Known(hash) => {
                hasher.update(&[0]).update(hash);
            }
            CallerId::Address(route, address) => {
                hasher.update(&[1]).update(route.as_bytes()).update(&[0xff]);
                match address.map(|address| address.to_canonical()) {
                    None => {}
                    Some(IpAddr::V4(address)) => {
                        hasher.update(&address.octets());
                    }
                    Some(IpAddr::V6(address)) => {
                        let network = address.to_bits() >> (u128::BITS - IPV6_BITS);
                        hasher.update(&network.to_le_bytes());
                    }
                }
            }
        }
        let mut bytes = [0; 24];
        hasher.finalize_xof().fill(&mut bytes);
        let (mut name, mut number) = ([0; 16], [0; 8]);
        name.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        number.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
        let set = u64::from_le_bytes(number) % self.0.sets.len() as u64;
        Place { name, set: usize::try_from(set).unwrap_or_default() }
    }

    /// Does something with the usage of a caller, which is made if it is new.
    fn with<T>(
        &self,
        place: Place,
        limits: &CallerLimits,
        now: Duration,
        act: impl FnOnce(&mut Usage) -> T,
    ) -> T {
        let Some(mut set) = self.set(place) else { return act(&mut Usage::default()) };
        if let Some(entry) = set.iter_mut().find(|entry| entry.name == place.name) {
            entry.usage.change(&entry.limits, limits, now);
            entry.limits = *limits;
            return act(&mut entry.usage);
        }
        let mut entry = Entry { name: place.name, limits: *limits, usage: Usage::default() };
        let done = act(&mut entry.usage);
        if set.len() < WAYS {
            set.push(entry);
        } else if let Some(least) =
            set.iter_mut().min_by_key(|other| other.usage.used(&other.limits, now))
        {
            *least = entry;
        }
        done
    }

    /// Does something with the usage of a caller, if it is still there.
    fn with_known(&self, place: Place, act: impl FnOnce(&mut Usage, &CallerLimits)) {
        let Some(mut set) = self.set(place) else { return };
        if let Some(entry) = set.iter_mut().find(|entry| entry.name == place.name) {
            act(&mut entry.usage, &entry.limits);
        }
    }

    fn set(&self, place: Place) -> Option<MutexGuard<'_, Vec<Entry>>> {
        let set = self.0.sets.get(place.set)?;
        Some(set.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Admitted {
    /// It was no new operation: it does not count.
    pub(crate) fn give_back(self) {
        // Under the limits that count now: what it took was converted to them.
        self.table.with_known(self.place, Usage::give_back);
    }

    /// Counts its outcome.
    pub(crate) fn add_stored(&self, bytes: u64, retention: Duration) {
        if self.limits.stored_bytes.is_some() {
            let now = self.table.now();
            let mut is_known = false;
            self.table.with_known(self.place, |usage, _| {
                usage.add_stored(bytes, retention, now);
                is_known = true;
            });
            if !is_known {
                let add = |usage: &mut Usage| usage.add_stored(bytes, retention, now);
                self.table.with(self.place, &self.limits, now, add);
            }
        }
    }
}

impl fmt::Debug for CallerUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerUsage").field("sets", &self.0.sets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::rate::Rate;
    use super::super::usage::Limit;
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn hash(number: u64) -> [u8; 32] {
        *blake3::hash(&number.to_le_bytes()).as_bytes()
    }

    fn refused(result: &Result<Admitted, Refusal>) -> Option<Limit> {
        result.as_ref().err().map(|refusal| refusal.limit)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_begun_runs_and_is_stored_is_limited() {
        let usage = CallerUsage::default();
        let limits =
            CallerLimits::default().rate(Rate::new(3, HOUR)).concurrent(2).stored_bytes(100);
        let ann = hash(1);
        let admit = || usage.admit(CallerId::Known(&ann), &limits);
        let (one, two) = (admit().unwrap(), admit().unwrap());
        assert_eq!(refused(&admit()), Some(Limit::Concurrent));
        one.give_back();
        let three = admit().unwrap();
        two.add_stored(60, HOUR);
        drop((two, three));
        drop(admit().unwrap());
        assert_eq!(refused(&admit()), Some(Limit::Rate));
        let forced = usage.force(CallerId::Known(&ann), &limits);
        forced.add_stored(40, HOUR);
        assert_eq!(refused(&admit()), Some(Limit::StoredBytes));
        assert!(usage.admit(CallerId::Known(&hash(2)), &limits).is_ok(), "others go on");
        tokio::time::advance(2 * HOUR).await;
        assert!(admit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_higher_rate_counts_at_once() {
        let usage = CallerUsage::default();
        let (slow, fast) = (Rate::new(2, HOUR), Rate::new(3600, HOUR));
        let (slow, fast) = (CallerLimits::default().rate(slow), CallerLimits::default().rate(fast));
        let ann = hash(1);
        let admit = |limits: &CallerLimits| usage.admit(CallerId::Known(&ann), limits);
        let (one, _two) = (admit(&slow).unwrap(), admit(&slow).unwrap());
        assert_eq!(refused(&admit(&slow)), Some(Limit::Rate));
        // The same caller after a reload.
        for _ in 0..3598 {
            drop(admit(&fast).unwrap());
        }
        let wait = admit(&fast).err().map(|refusal| refusal.retry_after);
        assert_eq!(wait, Some(Duration::from_secs(1)));
        // What was taken before is given back as what it is now.
        one.give_back();
        drop(admit(&fast).unwrap());
        assert_eq!(refused(&admit(&fast)), Some(Limit::Rate));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(admit(&fast).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn other_callers_do_not_make_one_forgotten() {
        let usage = CallerUsage::with_capacity(WAYS);
        let limits = CallerLimits::default().rate(Rate::new(10, HOUR)).concurrent(10);
        let ann = hash(0);
        for _ in 0..10 {
            drop(usage.admit(CallerId::Known(&ann), &limits).unwrap());
        }
        let bob = hash(1);
        let running: Vec<_> =
            (0..10).map(|_| usage.admit(CallerId::Known(&bob), &limits).unwrap()).collect();
        for stranger in 2..100_000 {
            let admitted = usage.admit(CallerId::Known(&hash(stranger)), &limits);
            assert!(admitted.is_ok(), "who comes for the first time is admitted");
        }
        assert_eq!(refused(&usage.admit(CallerId::Known(&ann), &limits)), Some(Limit::Rate));
        assert_eq!(refused(&usage.admit(CallerId::Known(&bob), &limits)), Some(Limit::Concurrent));
        drop(running);
        let held: usize = usage.0.sets.iter().map(|set| set.lock().unwrap().len()).sum();
        assert_eq!(held, WAYS);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_a_caller_on_its_route() {
        let usage = CallerUsage::default();
        let limits = CallerLimits::default().rate(Rate::new(1, HOUR));
        let admit = |route, address: Option<IpAddr>| {
            usage.admit(CallerId::Address(route, address), &limits).is_ok()
        };
        let v6 = |last| Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, last)));
        let v4 = Ipv4Addr::new(192, 0, 2, 7);
        assert!(admit("a", Some(v4.into())) && admit("b", Some(v4.into())));
        assert!(!admit("a", Some(v4.into())));
        assert!(!admit("a", Some(v4.to_ipv6_mapped().into())), "it is the same address");
        assert!(admit("a", v6(1)) && admit("a", v6(2)));
        let neighbour = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 9, 9, 9, 9);
        assert!(!admit("a", Some(neighbour.into())), "one client has the whole network");
        assert!(admit("a", None) && !admit("a", None));
        assert!(usage.admit(CallerId::Known(&hash(1)), &limits).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_evicted_while_it_ran_does_no_harm() {
        let usage = CallerUsage::with_capacity(1);
        let limits = CallerLimits::default().concurrent(1_000_000).stored_bytes(10);
        let ann = hash(0);
        let running = usage.admit(CallerId::Known(&ann), &limits).unwrap();
        let others: Vec<_> = (1..=64)
            .map(|other| {
                let name = hash(other);
                let many = (0..4).map(|_| usage.admit(CallerId::Known(&name), &limits).unwrap());
                many.collect::<Vec<_>>()
            })
            .collect();
        running.add_stored(10, HOUR);
        assert_eq!(refused(&usage.admit(CallerId::Known(&ann), &limits)), Some(Limit::StoredBytes));
        running.give_back();
        drop(others);
    }
}
