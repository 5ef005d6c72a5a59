//! What holds for any two requests: h10, h41 and h45.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::oracles::{callers, paths};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Paths that are near to those of the routes, spelled as nobody should.
fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("/".to_owned()),
        2 => proptest::sample::select(vec!["pay", "refund", "a", "x", "b", "y=1", "{z}", "caf"])
            .prop_map(str::to_owned),
        2 => proptest::sample::select(vec![".", "..", ";", ":", "%", "\\", "%00", "%2f", "%5C"])
            .prop_map(str::to_owned),
        2 => proptest::sample::select(vec!["p", "a", "y", ".", "/", "{", ":", ";", "\u{e9}"])
            .prop_map(escaped),
        1 => "%[0-9a-f]{2}",
    ];
    let free =
        proptest::collection::vec(piece, 0..9).prop_map(|pieces| format!("/{}", pieces.concat()));
    let known = vec!["/pay", "/pay/7/refund", "/a/b/c", "/caf%c3%a9", "/x;y=1/{z}", "/a:b"];
    let known = (proptest::sample::select(known), free.clone(), any::<u16>()).prop_map(
        |(known, detour, which)| match which % 4 {
            0 => known.to_owned(),
            1 => known.replacen('/', &format!("/x/..{detour}/../"), 1),
            2 => escaped_at(known, usize::from(which) / 4),
            _ => format!("{known}{detour}"),
        },
    );
    prop_oneof![free, known]
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// One character of a text escaped.
fn escaped_at(text: &str, number: usize) -> String {
    let at = number % text.len();
    let (before, rest) = text.split_at(at);
    let (this, after) = rest.split_at(1);
    format!("{before}{}{after}", escaped(this))
}

/// What headers say about callers, with much that differs only in its spelling.
const VALUES: [&str; 25] = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "Bearer a",
    "bearer a",
    "BEARER   a",
    "Bearer A",
    "Bearer",
    "bearer",
    "Basic a",
    "basic a",
    "Ann a",
    "ann a",
    "s=1",
    "s=1; t=2",
    "t=2; s=1",
    "s=2",
    " s = 1 ",
    "s=",
    "s",
    "S=1",
    "\u{e9}",
    "a\tb",
];

/// Two heads, mostly of the same headers with one value or none exchanged.
fn heads() -> impl Strategy<Value = (HeaderMap, HeaderMap)> {
    let header = proptest::sample::select(callers::headers().to_vec());
    let line = || (header.clone(), proptest::sample::select(VALUES.to_vec()));
    let lines = || proptest::collection::vec(line(), 0..4);
    let alike = (lines(), any::<prop::sample::Index>(), proptest::sample::select(VALUES.to_vec()))
        .prop_map(|(first, at, value)| {
            let mut second = first.clone();
            if !second.is_empty() {
                let at = at.index(second.len());
                second[at].1 = value;
            }
            (first, second)
        });
    prop_oneof![3 => alike, 1 => (lines(), lines())]
        .prop_map(|(one, other)| (head(one), head(other)))
}

fn head(lines: Vec<(HeaderName, &str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in lines {
        headers.append(name, HeaderValue::from_bytes(text.as_bytes()).unwrap());
    }
    headers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn h45_paths_that_one_server_takes_for_the_same_fall_under_one_route(
        one in path(),
        other in path(),
    ) {
        runtime().block_on(paths::check(&one, &other));
    }

    #[test]
    fn h10_a_replay_goes_to_the_caller_of_the_first_request_in_any_spelling(
        scope in any::<u8>(),
        (first, second) in heads(),
    ) {
        runtime().block_on(callers::check(callers::scope(scope), &first, &second));
        // And to itself, always.
        runtime().block_on(callers::check(callers::scope(scope), &first, &first));
    }
}
