//! Trace context (W3C): what is valid is passed on untouched, and what is missing is made if that
//! is wished.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use justonce::Entropy;
use justonce::http::TraceId;

use crate::config::MadeTrace;

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
/// How many members `tracestate` may have.
const MAX_MEMBERS: usize = 32;
/// How long their names and values may be.
const MAX_MEMBER_BYTES: usize = 256;

/// Settles the trace of each request.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    /// What flags a trace that is made has, and where its random ids come from.
    made: Option<(&'static str, Arc<Entropy>)>,
}

impl Traces {
    pub(crate) fn new(make: MadeTrace) -> Self {
        let flags = match make {
            MadeTrace::No => None,
            MadeTrace::Unsampled => Some("00"),
            MadeTrace::Sampled => Some("01"),
        };
        Self { made: flags.map(|flags| (flags, Arc::new(Entropy::from_system()))) }
    }

    /// Removes what is not valid, and makes a trace where there is none.
    pub(crate) fn settle(&self, headers: &mut HeaderMap) {
        if TraceId::of(headers).is_some() {
            if !is_valid_state(headers) {
                headers.remove(TRACE_STATE);
            }
            return;
        }
        headers.remove(TRACE_PARENT);
        headers.remove(TRACE_STATE);
        let Some((flags, entropy)) = &self.made else { return };
        // Zero is no id.
        let (trace, span) = (entropy.next_u128().max(1), entropy.next_u64().max(1));
        let parent = format!("00-{trace:032x}-{span:016x}-{flags}");
        if let Ok(parent) = HeaderValue::from_str(&parent) {
            headers.insert(TRACE_PARENT, parent);
        }
    }
}

/// Whether all lines of `tracestate` together are what the specification allows.
fn is_valid_state(headers: &HeaderMap) -> bool {
    let mut names: Vec<&[u8]> = Vec::new();
    for line in headers.get_all(TRACE_STATE) {
        for member in line.as_bytes().split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            if member.is_empty() {
                continue;
            }
            let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
            let (name, value) = member.split_at(at);
            let is_valid = is_name(name) && is_value(value.get(1..).unwrap_or_default());
            if !is_valid || names.len() >= MAX_MEMBERS || names.contains(&name) {
                return false;
            }
            names.push(name);
        }
    }
    true
}

fn is_name(name: &[u8]) -> bool {
    let fits =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(byte);
    let begins =
        name.first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins && name.len() <= MAX_MEMBER_BYTES && name.iter().all(fits)
}

fn is_value(value: &[u8]) -> bool {
    let fits = |byte: &u8| matches!(byte, b' '..=b'~') && !b",=".contains(byte);
    !value.is_empty() && value.len() <= MAX_MEMBER_BYTES && value.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn settled(make: MadeTrace, lines: &[(&'static str, &str)]) -> Vec<String> {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut headers: HeaderMap = lines.iter().map(line).collect();
        Traces::new(make).settle(&mut headers);
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(line).collect()
    }

    #[test]
    fn what_is_valid_is_untouched() {
        for make in [MadeTrace::No, MadeTrace::Sampled] {
            let lines =
                [("traceparent", PARENT), ("tracestate", "a=1 ,b@c=x y"), ("tracestate", "d=2")];
            let expected: Vec<_> =
                lines.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            assert_eq!(settled(make, &lines), expected);
        }
    }

    #[test]
    fn a_state_that_is_not_valid_goes_alone() {
        let many: Vec<_> = (0..33).map(|number| format!("a{number}=1")).collect();
        for state in ["a", "a=", "A=1", "a=1=2", "a=1,a=2", "=1", &many.join(","), "a=\t1"] {
            let lines = [("traceparent", PARENT), ("tracestate", state)];
            let left = settled(MadeTrace::No, &lines);
            assert_eq!(left, [format!("traceparent: {PARENT}")], "{state}");
        }
    }

    #[test]
    fn without_a_valid_parent_nothing_is_passed_on() {
        let none: [String; 0] = [];
        for parent in ["", "rubbish", &PARENT.to_uppercase()] {
            let lines = [("traceparent", parent), ("tracestate", "a=1")];
            assert_eq!(settled(MadeTrace::No, &lines), none, "{parent}");
        }
        let two = [("traceparent", PARENT), ("traceparent", PARENT)];
        assert_eq!(settled(MadeTrace::No, &two), none);
        assert_eq!(settled(MadeTrace::No, &[("tracestate", "a=1")]), none);
    }

    #[test]
    fn traces_are_made_if_that_is_wished() {
        for (make, end) in [(MadeTrace::Unsampled, "-00"), (MadeTrace::Sampled, "-01")] {
            let made = settled(make, &[("tracestate", "a=1")]);
            let [line] = &made[..] else { panic!("{made:?}") };
            assert!(line.ends_with(end), "{line}");
            let mut headers = HeaderMap::new();
            let value = line.strip_prefix("traceparent: ").unwrap();
            headers.insert(TRACE_PARENT, HeaderValue::from_str(value).unwrap());
            assert!(TraceId::of(&headers).is_some(), "{line}");
            assert_ne!(settled(make, &[]), made);
        }
    }
}
