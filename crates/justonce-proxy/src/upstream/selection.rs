//! Which of several upstreams gets a request: a pure rule.

/// Up to so many upstreams the loads of all are compared; of more, those of two. Loads are counters
/// that every request changes, so looking at all of them would cost more than it brings.
const COMPARED_AT_MOST: usize = 8;

/// Which of several upstreams gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests under way, in turn among equals. Of more than eight
    /// upstreams, the less loaded of two that are drawn.
    #[default]
    LeastLoaded,
    /// One after the other.
    RoundRobin,
}

/// The place of the upstream for the next request, of those that are free. `turn` grows by one
/// with each request.
pub(super) fn choose(
    balance: Balance,
    count: usize,
    turn: usize,
    is_free: impl Fn(usize) -> bool,
    load: impl Fn(usize) -> usize,
) -> Option<usize> {
    let from = |start: usize| (0..count).map(move |step| start.wrapping_add(step) % count);
    match balance {
        Balance::RoundRobin => from(turn).find(|at| is_free(*at)),
        Balance::LeastLoaded if count <= COMPARED_AT_MOST => {
            from(turn).filter(|at| is_free(*at)).min_by_key(|at| load(*at))
        }
        Balance::LeastLoaded => {
            let drawn = scatter(turn as u64);
            let (one, other) = (place(drawn, count), place(drawn.rotate_left(32), count));
            let one = from(one).find(|at| is_free(*at))?;
            let other = from(other).find(|at| *at != one && is_free(*at)).unwrap_or(one);
            Some(if load(other) < load(one) { other } else { one })
        }
    }
}

/// A place below `count`, by the upper half of `drawn`.
fn place(drawn: u64, count: usize) -> usize {
    usize::try_from(drawn >> 32).unwrap_or_default() % count
}

/// Spreads consecutive numbers over all numbers (SplitMix64): draws need no state of their own.
const fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(_: usize) -> bool {
        true
    }

    #[test]
    fn round_robin_takes_one_after_the_other_whatever_their_loads_are() {
        let places: Vec<_> = (0..6)
            .map(|turn| choose(Balance::RoundRobin, 3, turn, free, |at| 100 * at).unwrap())
            .collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
        let one_is_out = |turn| choose(Balance::RoundRobin, 3, turn, |at| at != 1, |_| 0);
        assert_eq!([0, 1, 2].map(one_is_out), [Some(0), Some(2), Some(2)]);
        assert_eq!(choose(Balance::RoundRobin, 3, 0, |_| false, |_| 0), None);
        // The counter wraps around.
        assert!(choose(Balance::RoundRobin, 3, usize::MAX, free, |_| 0).is_some());
    }

    #[test]
    fn of_few_the_least_loaded_is_taken_and_equals_take_turns() {
        let choose = |turn, loads: [usize; 3]| {
            choose(Balance::LeastLoaded, 3, turn, free, |at| loads[at]).unwrap()
        };
        assert_eq!([0, 1, 2].map(|turn| choose(turn, [2, 1, 2])), [1, 1, 1]);
        assert_eq!([0, 1, 2, 3].map(|turn| choose(turn, [1, 1, 1])), [0, 1, 2, 0]);
    }

    /// Sends requests that never end: the loads stay close to each other.
    fn spread(count: usize, requests: usize, is_free: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut loads = vec![0; count];
        for turn in 0..requests {
            let at = choose(Balance::LeastLoaded, count, turn, &is_free, |at| loads[at]).unwrap();
            loads[at] += 1;
        }
        loads
    }

    #[test]
    fn of_many_two_are_drawn_and_the_load_is_even() {
        let loads = spread(50, 5_000, free);
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        assert!(*least >= 90 && *most <= 110, "{loads:?}");
        // Those that are out get nothing, and the last one that is in gets everything.
        let loads = spread(50, 1_000, |at| at % 2 == 0);
        assert!(loads.iter().enumerate().all(|(at, load)| (*load == 0) == (at % 2 == 1)));
        assert_eq!(spread(50, 100, |at| at == 49)[49], 100);
        assert_eq!(choose(Balance::LeastLoaded, 50, 3, |_| false, |_| 0), None);
    }
}
